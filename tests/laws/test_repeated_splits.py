"""Law: under several splits of the rows the seed decides less, and intervals cover all the same."""

import numpy as np
import pytest

import fedopl
from fedopl.base.estimates import Estimate, median_estimate
from fedopl.client.disclosure.limits import Limits
from fedopl.client.door import Door
from fedopl.policies.policy import policy_json
from fedopl.study.plans import EvaluationPlan, NuisancePlan
from fedopl.study.splits import split_studies

NUISANCES = NuisancePlan(propensity="marginal")
CONTEXTS = np.random.default_rng(99).standard_normal((20_000, 4))
NAMES = {"actions": ("a", "b", "c"), "features": ("x0", "x1", "x2", "x3")}


def plan(splits, kind="cross-fitted", **options):
    return EvaluationPlan(kind=kind, splits=splits, describe=False, **options)


def mean_rewards(contexts, actions, effect):
    return effect * contexts[:, 0] * (actions - 1) + 0.3 * (actions == 1)


def logged(rng, n_rows, effect):
    contexts = rng.standard_normal((n_rows, 4))
    actions = rng.integers(0, 3, n_rows)
    rewards = mean_rewards(contexts, actions, effect) + rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, action_names="abc")


def clients_of(seed, n_rows, effect, names="vwxyz"):
    rng = np.random.default_rng(seed)
    return {name: logged(rng, n_rows, effect) for name in names}


def everything(run):
    return policy_json(run.policy), str(run), run.rounds, run.mixture, run.rows


# --- what is the same --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["held-out", "cross-fitted"])
def test_one_split_is_what_it_was_and_the_first_of_several(kind):
    clients = clients_of(0, 120, 0.5, "xyz")
    options = {"basis": "linear", "nuisances": NUISANCES}
    once = fedopl.learn(clients, evaluation=EvaluationPlan(kind=kind), **options)
    said = fedopl.learn(clients, evaluation=EvaluationPlan(kind=kind, splits=1), **options)
    assert said.study.digest == once.study.digest
    assert everything(said) == everything(once)
    assert once.splits == ()
    several = fedopl.learn(clients, evaluation=EvaluationPlan(kind=kind, splits=3), **options)
    assert policy_json(several.policy) == policy_json(once.policy)
    assert several.own_rounds == tuple(once.rounds)
    first, second, third = several.splits
    assert (first.values, first.gains) == (once.values, once.gains)
    assert first.values != second.values != third.values


def test_it_is_the_same_whatever_the_order_of_clients_and_threads():
    clients = clients_of(1, 100, 0.5, "xyz")
    found = fedopl.learn(clients, basis="linear", evaluation=plan(3))
    turned = dict(reversed(clients.items()))
    again = fedopl.learn(
        turned, basis="linear", evaluation=plan(3), running=fedopl.Running(threads=3)
    )
    assert everything(again) == everything(found)


def test_more_splits_come_after_those_that_were_there():
    study = fedopl.Study(**NAMES, evaluation=plan(5))
    more = study.model_copy(update={"evaluation": plan(8)})
    assert split_studies(more)[:5] == split_studies(study)
    assert len({one.digest for one in split_studies(more)}) == 8
    assert split_studies(study)[0] == fedopl.Study(**NAMES, evaluation=plan(1))
    assert study.digest not in {one.digest for one in split_studies(study)}


def test_other_seeds_share_no_split():
    seeds = [
        one.seed
        for seed in range(8)
        for one in split_studies(fedopl.Study(**NAMES, evaluation=plan(5), seed=seed))
    ]
    assert len(set(seeds)) == 40


# --- what is told ------------------------------------------------------------------------------


def estimate(value, error, freedom=50):
    return Estimate(value=value, standard_error=error, n_rows=100, degrees_of_freedom=freedom)


def test_the_median_is_told_and_one_split_that_goes_astray_moves_nothing():
    found = [estimate(1.0, 0.2), estimate(1.1, 0.2, 30), estimate(1.2, 0.2), estimate(9.0, 5.0)]
    together = median_estimate([*found, estimate(1.1, 0.3)])
    assert together.value == 1.1
    # Of 0.04 + 0.01, 0.04, 0.04 + 0.01, 25 + 62 and 0.09, the one in the middle.
    assert together.standard_error == pytest.approx(np.sqrt(0.05))
    assert together.degrees_of_freedom == 30
    assert median_estimate(found[:1]) is found[0]


def test_what_other_rows_differ_by_anyway_is_counted_once():
    found = [estimate(value, 0.2) for value in (0.85, 1.0, 1.15)]
    assert median_estimate(found, share=0.25).standard_error == pytest.approx(0.2)
    assert median_estimate(found).standard_error == pytest.approx(np.sqrt(0.04 + 0.15**2))
    far = [estimate(value, 0.2) for value in (0.5, 1.0, 1.5)]
    beyond = 0.04 + 0.25 - 0.75 * 0.04
    assert median_estimate(far, share=0.25).standard_error == pytest.approx(np.sqrt(beyond))


@pytest.fixture(scope="module")
def eight_seeds():
    """Five clients of 150 rows, valued by eight seeds under five splits each."""
    clients = clients_of(2, 150, 0.2)
    return [
        fedopl.learn(
            clients,
            policy=fedopl.Linear(precision="rows"),
            basis="linear",
            evaluation=plan(5),
            nuisances=NUISANCES,
            seed=seed,
        )
        for seed in range(8)
    ]


def better(gain):
    return gain.interval()[0] > 0


def agreeing(gains):
    """How many of them give the verdict that most give."""
    n_better = sum(map(better, gains))
    return max(n_better, len(gains) - n_better)


@pytest.mark.slow_law
def test_the_seed_moves_medians_less_and_verdicts_agree_more_often(eight_seeds):
    past = "logging policy"
    alone = [split.gains.over(past) for run in eight_seeds for split in run.splits]
    together = [run.gains.over(past) for run in eight_seeds]
    spread, left = (np.std([gain.value for gain in some]) for some in (alone, together))
    print(f"spread {spread:.4f} → {left:.4f}; better {sum(map(better, alone))} of 40 → ", end="")
    print(f"{sum(map(better, together))} of 8")
    # The median of five independent numbers varies 0.54 times as much as each; of 8 medians that
    # is known to about a quarter.
    assert 0.25 * spread < left < 0.8 * spread
    assert agreeing(together) / 8 > agreeing(alone) / 40
    # The error is that of one split and what they differ by: it does not shrink.
    errors = [gain.standard_error for gain in together]
    assert np.mean(errors) >= np.mean([gain.standard_error for gain in alone])


# Of 40 runs that cover 95 %, at least 35 do in all but one of a hundred such tests; of 8, 6.
@pytest.mark.parametrize(
    ("n_runs", "least"),
    [(8, 6), pytest.param(40, 35, marks=pytest.mark.slow_law)],
    ids=["few draws", "many draws"],
)
@pytest.mark.parametrize("kind", ["held-out", "cross-fitted"])
def test_intervals_cover_under_several_splits(kind, n_runs, least):
    effect = 0.5
    logging = np.mean([mean_rewards(CONTEXTS, np.full(20_000, a), effect).mean() for a in range(3)])
    covered = 0
    for seed in range(n_runs):
        run = fedopl.learn(
            clients_of(seed, 100, effect, "xy"),
            basis="linear",
            evaluation=plan(3, kind),
            nuisances=NUISANCES,
            seed=seed,
        )
        decided = run.policy.decide(CONTEXTS)
        low, high = run.gains.over("logging policy").interval()
        covered += low <= mean_rewards(CONTEXTS, decided, effect).mean() - logging <= high
    print(kind, covered / n_runs)
    assert covered >= least


# --- what leaves a client ----------------------------------------------------------------------


def door(study, data, secret="only x knows", **limits):
    return Door("x", data, study, secret=secret, limits=Limits(**limits))


def test_every_split_is_counted_as_a_study_and_one_more_than_allowed_is_refused():
    clients = clients_of(3, 200, 0.5, "xy")
    run = fedopl.learn(clients, basis="linear", evaluation=plan(5), limits="guarded")
    studies = {one.digest.hex() for one in split_studies(run.study)}
    assert all({entry.study for entry in own} == studies for own in run.ledger.values())
    assert len({entry.study_name for entry in run.ledger["x"]}) == 5
    with pytest.raises(
        fedopl.FederationError, match=r"split 6 of 6: Enrol.*\n.*TOO_MANY_STUDIES.*"
    ):
        fedopl.learn(
            clients,
            basis="linear",
            evaluation=plan(6),
            nuisances=NUISANCES,
            limits=Limits(studies=5),
        )


def test_a_secret_splits_rows_in_another_way_each_time_and_nobody_else_can():
    """Sums of two splits are over other rows: without the secret nobody knows which to subtract."""
    data = logged(np.random.default_rng(4), 400, 0.5)
    studies = split_studies(fedopl.Study(**NAMES, evaluation=EvaluationPlan(share=0.25, splits=4)))
    folds = [door(one, data)._space.study_rows.folds_as_given.of_row for one in studies]
    guessed = [
        door(one, data, "a guess")._space.study_rows.folds_as_given.of_row for one in studies
    ]
    n_folds = studies[0].nuisances.folds
    out = [of_row == n_folds for of_row in folds]
    for place, own in enumerate(out):
        for other in (*out[:place], guessed[place] == n_folds):
            # Of a quarter held out twice, a sixteenth is expected in both.
            assert abs((own & other).mean() - 1 / 16) < 0.04


def test_a_door_answers_for_its_own_split_alone():
    from fedopl.messages import codec
    from fedopl.messages.learning.enrolment import Enrol
    from fedopl.messages.refusal import Refusal, RefusalCode

    data = logged(np.random.default_rng(5), 200, 0.5)
    first, second = split_studies(fedopl.Study(**NAMES, evaluation=plan(2)))
    here = door(first, data)
    asked = codec.encode(Enrol(study=second.digest, exchange=0))
    answer = here._decoder.decode(here.handle(asked))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalCode.WRONG_STUDY


# --- what cannot be repeated -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": "finite"}, "another candidate"),
        ({"mixture": "minimax"}, "other weights"),
        ({"mixture": fedopl.mixture.uniform(robust="trimmed")}, "other weights"),
        ({"diagnose": True}, "joining is judged under one split"),
        ({"evaluation": EvaluationPlan(share=0, splits=2)}, "no rows are held out"),
    ],
)
def test_splits_that_are_not_of_the_same_thing_are_refused(draw, options, said):
    with pytest.raises(fedopl.OptionError, match=rf"splits.*{said}"):
        fedopl.learn(
            {"a": draw(100)}, basis="linear", **{"evaluation": EvaluationPlan(splits=2), **options}
        )


def test_a_tree_is_repeated_and_handed_out_as_the_first_split_has_it(draw):
    clients = {"a": draw(200, n_features=2), "b": draw(200, seed=1, n_features=2)}
    tree = fedopl.Tree(depth=2, bins=4)
    options = {"basis": "linear", "policy": tree, "nuisances": NUISANCES}
    once = fedopl.learn(clients, **options)
    several = fedopl.learn(clients, evaluation=EvaluationPlan(splits=3), **options)
    assert policy_json(several.policy) == policy_json(once.policy)
    assert several.leaves == once.leaves
    gains = [one.gains.over("logging policy").value for one in several.splits]
    assert several.gains.over("logging policy").value == sorted(gains)[1]
