from dataclasses import replace

import numpy as np
import pytest
from test_door import (
    ACTIONS,
    FEATURES,
    LOCAL,
    MARGINAL,
    ask,
    decoded,
    door_to,
    encoded_query,
    forget_answers,
    reason,
    scored,
    study_of,
)

import fedopl
from fedopl.client import workspace
from fedopl.client.disclosure.held_values import merged_bins
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disk.store import FolderStore
from fedopl.client.scoring import outcome, scoring_pass
from fedopl.messages.evaluation.description import CHANCE_CUTS, Describe
from fedopl.messages.refusal import Refusal
from fedopl.study.plans import Grants, NuisancePlan

KNOWN = NuisancePlan(propensity="known")
LEARNED = np.random.default_rng(3).standard_normal((3, 6))
PAIRS = np.random.default_rng(4).standard_normal((3, 6))
CUTS = np.sort(np.random.default_rng(5).standard_normal((6, 3)), axis=1)
NOBODY = np.empty((0, 3, 6))


def severe_first(contexts):
    return 2 * (contexts[:, 0] > 0.5)


# What a query says of one policy, and the policy itself.
POLICIES = {
    "linear": (
        {"linear": LEARNED[None]},
        fedopl.LinearPolicy(LEARNED, ACTIONS, FEATURES).decide,
    ),
    "pairwise": (
        {"linear": NOBODY, "pairwise": PAIRS[None]},
        fedopl.PairwisePolicy(PAIRS, ACTIONS, FEATURES).decide,
    ),
    "a rule in code": ({"linear": NOBODY, "rules": np.zeros(1)}, severe_first),
}
every_policy = pytest.mark.parametrize(("fields", "decide"), POLICIES.values(), ids=POLICIES)


def describing(data, *, limits=None, **changes):
    """A door that has scored its rows, to a study that names a rule."""
    study = study_of(policy=fedopl.Finite(candidates=("severe first",)), **changes)
    return scored(door_to(data, study, limits=limits, rules={"severe first": severe_first}))


def counted(contexts, codes, cuts):
    """Rows by feature, bin and action, one row at a time; a row on a cut is below it."""
    counts = np.zeros((len(cuts), len(cuts[0]) + 1, len(ACTIONS)))
    for row, code in zip(contexts, codes, strict=True):
        for feature, value in enumerate([*row, 1.0]):
            counts[feature, sum(value > cut for cut in cuts[feature]), code] += 1
    return counts


def training_rows(door):
    space = door._space
    return space.data.contexts[space.training], space.data.actions[space.training]


# --- what is told -------------------------------------------------------------------------------


@every_policy
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_open_counts_are_those_of_a_loop_over_the_training_rows(draw, fields, decide, weighted):
    weights = np.random.default_rng(1).uniform(0.5, 2, 200) if weighted else None
    door = describing(draw(weights=weights))
    contexts, actions = training_rows(door)
    told = ask(door, Describe, cuts=CUTS, **fields)
    np.testing.assert_array_equal(told.decided, counted(contexts, decide(contexts), CUTS))
    np.testing.assert_array_equal(told.taken, counted(contexts, actions, CUTS))


@pytest.mark.parametrize("nuisances", [MARGINAL, LOCAL], ids=["federated", "local"])
def test_open_counts_of_every_feature_add_up_to_the_training_rows(draw, nuisances):
    door = describing(draw(), nuisances=nuisances)
    told = ask(door, Describe, linear=LEARNED[None], cuts=CUTS)
    assert set(told.decided.sum(axis=(1, 2))) == {door._space.n_training}
    assert told.taken.sum(axis=1).tolist() == [door._space.rows_per_action.tolist()] * 6
    assert set(told.chances.sum(axis=1)) == {door._space.n_training}


def test_a_row_on_a_cut_is_below_it_and_equal_cuts_have_nobody_between(draw):
    data = draw()
    whole = fedopl.LoggedData(
        data.contexts.round(), data.actions, data.rewards, action_names=ACTIONS
    )
    told = ask(describing(whole), Describe, cuts=np.zeros((6, 3))).taken.sum(axis=2)
    contexts, _ = training_rows(describing(whole))
    assert told[:5, 0].tolist() == (contexts <= 0).sum(axis=0).tolist()
    assert told[:5, 3].tolist() == (contexts > 0).sum(axis=0).tolist()
    assert not told[:, 1:3].any()


def test_groups_of_few_rows_are_merged(draw):
    """Of 45 training rows, few are in some of four groups by each feature."""
    told = ask(describing(draw(60), limits=Limits()), Describe, linear=LEARNED[None], cuts=CUTS)
    every = ask(describing(draw(60)), Describe, linear=LEARNED[None], cuts=CUTS)
    for name in ("decided", "taken"):
        for own, exact in zip(getattr(told, name), getattr(every, name), strict=True):
            onto = merged_bins(exact.sum(axis=1).astype(int), 5)
            assert own.tolist() == [exact[onto == place].sum(axis=0).tolist() for place in range(4)]
    sizes = every.decided.sum(axis=2), told.decided.sum(axis=2)
    assert [((counts > 0) & (counts < 5)).any() for counts in sizes] == [True, False]
    assert told.chances.tolist() == np.where(every.chances < 5, 0, every.chances).tolist()


def test_contexts_of_rows_set_apart_change_no_description(draw):
    data = draw()
    apart = door_to(data)._space.folds.held_out
    told = []
    for moved in (0.0, 1e3):
        door = describing(data)
        whole = door._space.study_rows.whole
        contexts = whole.data.contexts + moved * apart[:, None]
        door._space.study_rows.whole = replace(whole, data=whole.data.with_contexts(contexts))
        told.append(door.handle(encoded_query(door, Describe, linear=LEARNED[None], cuts=CUTS)))
    assert told[0] == told[1]


# --- how well actions are supported -------------------------------------------------------------


def of_training_rows(door):
    data, rows = door._space.data, door._space.training
    weights = None if data.weights is None else data.weights[rows]
    return fedopl.LoggedData(
        data.contexts[rows],
        data.actions[rows],
        data.rewards[rows],
        data.propensities[rows],
        action_names=ACTIONS,
        weights=weights,
    )


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_effective_rows_are_those_of_overlap_on_training_rows(draw, weighted):
    weights = np.random.default_rng(1).uniform(0.5, 2, 300) if weighted else None
    data = draw(300, known=True, confounded=True, weights=weights)
    door = describing(data, nuisances=KNOWN)
    learned_from = of_training_rows(door)
    nuisances = fedopl.cross_fit(learned_from, propensity="known")
    expected = fedopl.overlap(learned_from, nuisances).effective_rows
    np.testing.assert_allclose(ask(door, Describe).effective_rows, expected)


def test_chances_count_training_rows_by_the_propensity_of_each_action(draw):
    data = draw(300, known=True, confounded=True)
    door = describing(data, nuisances=KNOWN)
    told = ask(door, Describe).chances
    edges = [0, *CHANCE_CUTS, 1 + 1e-9]
    for action, known in enumerate(door._space.data.propensities[door._space.training].T):
        assert told[action].tolist() == np.histogram(known, edges)[0].tolist()


def test_only_the_logged_propensity_is_enough_and_counts_those_who_took_the_action(draw):
    data = draw(300, known=True, confounded=True)
    logged = data.propensities[np.arange(300), data.actions]
    alone = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, logged, action_names=ACTIONS
    )
    every, some = (describing(rows, nuisances=KNOWN) for rows in (data, alone))
    told = ask(some, Describe)
    assert told.chances.sum(axis=1).tolist() == some._space.rows_per_action.tolist()
    np.testing.assert_allclose(told.effective_rows, ask(every, Describe).effective_rows)


@pytest.mark.parametrize("n_rare", [0, 1, 3])
def test_no_effective_rows_are_told_of_an_action_that_few_rows_took(n_rare):
    rng = np.random.default_rng(0)
    actions = np.repeat([0, 1, 2], [150, 150, n_rare])
    often = np.array([150, 150, max(n_rare, 1)])
    chances = np.tile(often / often.sum(), (len(actions), 1))
    data = fedopl.LoggedData(
        rng.standard_normal((len(actions), 5)),
        actions,
        rng.standard_normal(len(actions)),
        chances,
        action_names=ACTIONS,
    )
    for limits in (Limits.open(), Limits()):
        door = describing(data, nuisances=KNOWN, limits=limits)
        told = ask(door, Describe).effective_rows
        assert (told[2] > 0) == (n_rare > 0 and not limits.minimum_cell)
        assert told[:2].max() > 100
        assert (told[:2] > 100).all()


# --- what is refused ----------------------------------------------------------------------------

ANOTHER = {"linear": LEARNED[None]}
MALFORMED = {
    "no policy": {"linear": NOBODY},
    "two linear ones": {"linear": np.stack([LEARNED, -LEARNED])},
    "the same twice": {"linear": np.stack([LEARNED, LEARNED])},
    "one of each kind": {**ANOTHER, "pairwise": PAIRS[None]},
    "one and a rule": {**ANOTHER, "rules": np.zeros(1)},
    "the same rule twice": {"linear": NOBODY, "rules": np.zeros(2)},
    "falling cuts": {**ANOTHER, "cuts": CUTS[:, ::-1]},
    "one pair of falling cuts": {**ANOTHER, "cuts": np.vstack([CUTS[:5], CUTS[5:, ::-1]])},
}


@pytest.mark.parametrize("limits", [Limits.open(), Limits()], ids=["open", "guarded"])
@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED)
def test_a_description_is_of_one_policy_by_rising_cuts(draw, fields, limits):
    door = describing(draw(), limits=limits)
    assert reason(ask(door, Describe, **fields)) == "MALFORMED"
    assert not isinstance(ask(door, Describe, **ANOTHER), Refusal)


def test_a_client_that_tells_no_values_may_still_describe(draw):
    door = describing(draw(), limits=Limits(values=False))
    assert not isinstance(ask(door, Describe, cuts=CUTS), Refusal)


# --- another process ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["federated", "local"])
@pytest.mark.parametrize("propensity", ["marginal", "logistic"])
def test_a_new_process_describes_without_fitting_anything(
    draw, tmp_path, monkeypatch, kind, propensity
):
    study = study_of(nuisances=NuisancePlan(propensity=propensity, kind=kind))
    store = FolderStore(tmp_path)
    first = scored(door_to(draw(), study, store=store))
    query = encoded_query(first, Describe, linear=LEARNED[None], cuts=CUTS)
    expected = first.handle(query)
    assert not isinstance(decoded(first, expected), Refusal)
    forget_answers(tmp_path)
    monkeypatch.setattr(workspace, "fit_propensities", None)
    monkeypatch.setattr(scoring_pass, "aipw_scores", None)
    monkeypatch.setattr(outcome, "predict", None)
    assert door_to(draw(), study, store=store).handle(query) == expected


# --- what a study requires ----------------------------------------------------------------------

ENOUGH = Limits(minimum_rows=50, minimum_cell=5, parameter_share=0.5)
TOO_MUCH = {
    "minimum_rows": (49, "minimum_rows is 50, the study requires 49 or less"),
    "minimum_cell": (4, "minimum_cell is 5, the study requires 4 or less"),
    "parameter_share": (0.6, "parameter_share is 0.5, the study requires 0.6 or more"),
}


def test_every_grant_is_of_a_limit_and_asks_for_nothing_unless_said():
    assert set(Grants.model_fields) == {*TOO_MUCH, "values"}
    assert set(Grants.model_fields) < set(Limits.model_fields)
    forbidding = Limits(minimum_rows=10**6, minimum_cell=10**6, parameter_share=1e-6, values=False)
    assert forbidding.lacking(Grants()) == []


@pytest.mark.parametrize("name", TOO_MUCH)
def test_limits_lack_what_a_study_requires_beyond_them_and_nothing_else(name):
    wanted, words = TOO_MUCH[name]
    assert ENOUGH.lacking(Grants(**{name: wanted})) == [words]
    assert ENOUGH.lacking(Grants(**{name: getattr(ENOUGH, name)})) == []
    assert Limits.open().lacking(Grants(**{name: wanted})) == []


def test_values_are_lacking_where_they_are_forbidden():
    silent = Limits(values=False)
    assert silent.lacking(Grants(values=True)) == ["values is false, the study requires true"]
    assert silent.lacking(Grants(values=False)) == []
    assert ENOUGH.lacking(Grants(values=True)) == []


def test_all_that_is_lacking_is_named():
    everything = Grants(**{name: wanted for name, (wanted, _) in TOO_MUCH.items()})
    assert ENOUGH.lacking(everything) == [words for _, words in TOO_MUCH.values()]
