"""The International Stroke Trial, where it is at hand: 19,435 patients, aspirin by heparin."""

from pathlib import Path

import numpy as np
import pytest

import fedopl

IST = Path(__file__).parents[2] / "shared" / "data" / "IST.csv.gz"
pytestmark = pytest.mark.skipif(not IST.exists(), reason="the trial's table is not at hand")

SCHEMA = fedopl.Schema(
    action="RXASP",
    actions=["N", "Y"],
    reward="ID14",
    direction="lower",
    numeric=["AGE", "RDELAY", "RSBP"],
    categorical={
        "SEX": ["F", "M"],
        "RCONSC": ["F", "D", "U"],
        "STYPE": ["PACS", "TACS", "LACS", "POCS", "OTH"],
    },
    group="HOSPNUM",
)


def test_the_trial_reads_scores_and_reports_a_small_benefit_of_aspirin():
    data = fedopl.read_logged(IST, SCHEMA)
    assert repr(data) == "LoggedData(19,435 rows, 10 features, 2 actions, 466 groups)"
    nuisances = fedopl.cross_fit(data)
    assert nuisances.propensity == "marginal"  # a coin was tossed
    scores = fedopl.aipw_scores(data, nuisances)
    aspirin, none = (fedopl.estimate_value(scores, arm) for arm in "YN")
    deaths = -data.rewards
    for arm, estimate in ((1, aspirin), (0, none)):
        crude = deaths[data.actions == arm].mean()
        assert -estimate.value == pytest.approx(crude, abs=0.003)
        assert 0.002 < estimate.standard_error < 0.006
    # Covariates explain part of who dies, so adjusting for them sharpens the estimate.
    assert fedopl.overlap(data, nuisances).residual_variance.max() < np.var(deaths)


def test_heparin_deaths_are_those_the_trial_published():
    heparin = SCHEMA.model_copy(update={"action": "RXHEP", "actions": ("N", "L", "M", "H")})
    data = fedopl.read_logged(IST, heparin)
    died = data.rewards < 0
    without = data.actions == 0
    assert (died[without].sum(), without.sum()) == (905, 9718)
    assert (died[~without].sum(), (~without).sum()) == (876, 9717)
