import subprocess
import sys

import fedopl

SURFACE = """
    DataError Declared Estimate FederationError FedoplError FedoplWarning Limits LinearPolicy
    LoggedData ModelError NuisancePlan Nuisances OptionError Overlap PairwisePolicy PolicyError
    PolicyLearner PrivacyError Run Schema SchemaError Scores StorageError Study StudyError
    TrainingPlan TreePlan TreePolicy aipw_scores check cross_fit dm_scores estimate_value evaluate
    ipw_scores learn load_policy load_run mixture overlap read_logged read_study run search_tree
    self_normalised_aipw_scores self_normalised_ipw_scores write_report
""".split()

HEAVY = ("sklearn", "pandas", "polars", "matplotlib", "pyarrow", "scipy", "pydantic", "narwhals")


def test_the_public_surface_is_what_it_was():
    assert sorted(fedopl.__all__) == SURFACE


def test_every_public_name_is_there_and_has_a_docstring():
    for name in fedopl.__all__:
        assert getattr(fedopl, name).__doc__, name
    assert set(fedopl.__all__) <= set(dir(fedopl))


def test_the_lazy_table_and_the_surface_agree():
    assert sorted([*fedopl._HOME_OF, "mixture"]) == sorted(fedopl.__all__)


def _loaded_after(code):
    program = f"{code}\nimport sys; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()


def test_importing_fedopl_loads_nothing_heavy():
    assert _loaded_after("import fedopl") == []


def test_scoring_arrays_with_linear_models_loads_nothing_heavy():
    code = """
import fedopl, numpy as np
data = fedopl.LoggedData(np.eye(8), [0, 1] * 4, np.arange(8.0))
fedopl.aipw_scores(data, fedopl.cross_fit(data, propensity="marginal"))
"""
    assert _loaded_after(code) == []


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(fedopl, "no_such_thing")
