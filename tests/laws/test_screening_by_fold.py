"""Law: cross-fitted values are of policies whose terms, too, were found without the fold valued."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fedopl
from fedopl.client import workspace
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.answers.valuing import value_personal
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.local.local_policy import local_policies_by_fold
from fedopl.client.scoring.joined_models import StackedOutcomes
from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.derived_sizes import largest_query
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.learning.score_sums import ScoreSumsByFold
from fedopl.messages.learning.term_screening import TakeFound
from fedopl.messages.message import stamped
from fedopl.policies.basis import Basis
from fedopl.policies.terms import Terms
from fedopl.report.page import render
from fedopl.server import policy_comparison
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.server.federation import evaluate_policies
from fedopl.server.learn_by_fold import learn_by_fold
from fedopl.server.screening import screen_if_wanted
from fedopl.solvers import least_squares
from fedopl.solvers.nested_ridge import of_usable_by_fold
from fedopl.study.plans import EvaluationPlan
from fedopl.study.screened_study import with_most_found

pytestmark = pytest.mark.usefixtures("without_figures")

PLAN = EvaluationPlan(kind="cross-fitted", describe=False)
NAMES = ("x0", "x1", "x2", "x3")
KNOTS = dict.fromkeys(NAMES, (-1.0, 0.0, 1.0))
FRESH = np.random.default_rng(99).standard_normal((20_000, 4))


def mean_rewards(contexts, strength=0.7):
    """Which of the first two arms is better depends on whether two numbers have the same sign."""
    own = np.where(contexts[:, 0] * contexts[:, 1] > 0, strength, -strength)
    arms = np.column_stack([np.zeros(len(contexts)), own, np.full(len(contexts), 0.1)])
    return arms + 0.5 * contexts[:, :1]


def xor(seed, n_rows=(400, 400, 400), product=0.0):
    """Clients of a trial with three arms and known propensities; two more numbers may matter."""
    return {"abc"[place]: one_client([seed, place], n, product) for place, n in enumerate(n_rows)}


def one_client(seed, n_rows, product):
    rng = np.random.default_rng(seed)
    contexts, actions = rng.standard_normal((n_rows, 4)), rng.integers(0, 3, n_rows)
    rewards = mean_rewards(contexts)[np.arange(n_rows), actions] + rng.standard_normal(n_rows)
    rewards += product * contexts[:, 2] * contexts[:, 3] * (actions == 1)
    return logged(contexts, actions, rewards)


def logged(contexts, actions, rewards):
    return fedopl.LoggedData(
        contexts, actions, rewards, 1 / 3, action_names="abc", feature_names=NAMES
    )


def regret(policy):
    means = mean_rewards(FRESH)
    return float((means.max(axis=1) - means[np.arange(len(FRESH)), policy.decide(FRESH)]).mean())


@pytest.fixture(scope="module")
def run():
    """A run that screens for pairs and thresholds, with what its clients and its server saw."""
    seen = SimpleNamespace(spaces={}, stacks=[])

    def valued(space, query):
        seen.spaces[space.client] = space
        return value_personal.answer(space, query)

    def learned(setting, price):
        seen.setting, seen.policies = setting, learn_by_fold(setting, price)
        return seen.policies

    def alone(*given):
        seen.alone = local_policies_by_fold(*given)
        return seen.alone

    def stacked(stack, *given):
        seen.stacks.append(honest(stack, *given))
        return seen.stacks[-1]

    basis = Basis(knots=KNOTS, pairs=[("x0", "x1")], screened_pairs=2, screened_thresholds=2)
    honest = StackedOutcomes.stacked
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(HANDLERS, Value, valued)
        patch.setattr(policy_comparison, "learn_by_fold", learned)
        patch.setattr(workspace, "local_policies_by_fold", alone)
        patch.setattr(StackedOutcomes, "stacked", stacked)
        clients = xor(2, (300, 400, 500), product=0.2)
        found = fedopl.learn(clients, basis=basis, evaluation=PLAN, limits="guarded")
    assert not found.refusals
    return found, seen


def rows_without(space, fold):
    """The rows of all other folds, as a table of their own."""
    whole = space.whole
    kept = whole.folds.of_row != fold
    return logged(whole.data.contexts[kept], whole.data.actions[kept], whole.data.rewards[kept])


def screened(clients, agreed):
    """The basis that a study of all these rows would go on with."""
    doors = {name: Door(name, own, agreed, secret=SEED_ALONE) for name, own in clients.items()}
    conversation = Conversation(agreed, InProcess(doors))
    screen_if_wanted(conversation)
    return conversation.study.basis


def test_terms_are_those_found_in_the_rows_of_the_other_folds(run):
    """As if each fold's rows were not there, and as if there were no folds."""
    found, seen = run
    agreed = found.study.before_screening.model_copy(update={"evaluation": EvaluationPlan(share=0)})
    for screening, fold in enumerate([*range(5), None]):
        others = {name: rows_without(space, fold) for name, space in seen.spaces.items()}
        assert found.study.basis.of_screening(screening) == screened(others, agreed)
    each = [found.study.basis.of_screening(screening) for screening in range(6)]
    for kind in ("found_pairs", "found_thresholds"):
        assert len({getattr(own, kind) for own in each}) > 1  # or this says little


def test_the_policy_for_a_fold_is_learned_on_terms_found_without_it(run):
    """As in a study that has no other terms."""
    found, seen = run
    basis, setting = found.study.basis, seen.setting
    for fold, policy in enumerate(seen.policies):
        own = basis.of_screening(fold)
        usable = names_of(own)
        assert used_by(policy) <= usable
        assert used_by(seen.alone[fold]) <= usable
        study = found.study.model_copy(update={"basis": own})
        alone = learn_by_fold(
            replace(
                setting,
                study=study,
                by_fold={n: sums_by_fold(space, study.terms) for n, space in seen.spaces.items()},
            )
        )[fold]
        assert used_by(alone) == used_by(policy)
        kept = [*map(found.study.terms.names.index, study.terms.names), -1]
        assert policy.numbers()[:, kept] == pytest.approx(alone.numbers(), rel=1e-6, abs=1e-9)
    assert used_by(found.policy) <= names_of(basis.of_screening(-1))
    assert any(used_by(policy) - names_of(basis.of_screening(-1)) for policy in seen.policies)


def test_outcome_models_of_a_fold_use_terms_found_without_it(run):
    found, seen = run
    names = np.array(found.study.terms.names)
    assert len(seen.stacks) == 6  # everybody's and own, of three clients
    for stacked in seen.stacks:
        for screening, models in enumerate(stacked.parameters):
            used = set(names[np.abs(models[:, :-1]).max(axis=0) > 1e-9])  # beyond rounding
            assert used <= names_of(found.study.basis.of_screening(screening))


def names_of(basis):
    return set(Terms(basis, NAMES).names)


def used_by(policy):
    return set(np.array(policy.terms.names)[policy.coefficients.any(axis=0)])


def sums_by_fold(space, terms):
    """The means that a client would report of these terms, in plain numbers."""
    whole, parts = space.whole, []
    for rows in whole.fold_slices:
        columns = terms.of(whole.data.contexts[rows])
        columns, scores = np.column_stack([columns, np.ones(len(columns))]), whole.scores[rows]
        parts.append((columns.T @ columns, scores.T @ columns, (scores**2).sum(axis=0)))
    sizes = np.array([len(whole.scores[rows]) for rows in whole.fold_slices])
    grams, products, squares = (
        np.array([own / size for own, size in zip(each, sizes, strict=True)])
        for each in zip(*parts, strict=True)
    )
    return ScoreSumsByFold(
        weights=sizes / sizes.sum(),
        grams=grams[:, None],
        products=products,
        squares=squares,
        shares=np.ones(squares.shape),
    )


def test_it_takes_no_trip_more_and_is_saved(run, tmp_path):
    found, _ = run
    assert found.rounds[-1].trip + 1 == expected_trips(found.study, 3) == 4
    assert len(found.rounds) == expected_exchanges(found.study, 3)
    found.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert again.study == found.study
    assert np.array_equal(again.policy.decide(FRESH), found.policy.decide(FRESH))


def test_the_report_names_what_the_policy_may_use(run):
    found, _ = run
    page = " ".join(render(found).split())
    assert "uses only what was found without it" in page
    basis = found.study.basis
    of_all = basis.of_screening(-1).found_thresholds
    others = set(basis.found_thresholds) - set(of_all)
    assert of_all
    assert others
    for threshold, is_said in ((of_all[0], True), (others.pop(), False)):
        words = " and ".join(f"{name} > {cut:g}" for name, cut in threshold)
        assert (f"both {words}".replace(">", "&gt;") in page) == is_said


@pytest.mark.slow_law
def test_a_study_learns_about_as_well_as_without_values():
    """In a world where little is learned without thresholds."""
    plans = {"all rows": 0, "by fold": PLAN, "smooth": PLAN}
    regrets = {name: [] for name in plans}
    for seed in range(4):
        clients = xor(seed)
        for name, plan in plans.items():
            basis = fedopl.Basis(knots=KNOTS, products=NAMES) if name == "smooth" else "auto"
            found = fedopl.learn(clients, basis=basis, evaluation=plan, seed=seed)
            regrets[name].append(regret(found.policy))
    means = {name: np.mean(own) for name, own in regrets.items()}
    assert means["by fold"] <= 1.1 * means["all rows"]
    assert means["by fold"] <= 0.6 * means["smooth"]


def test_a_study_has_what_all_of_its_screenings_found():
    basis = Basis(
        knots=KNOTS,
        screened_pairs=1,
        found_pairs=[("x0", "x1"), ("x0", "x2")],
        found_by_fold=((0,), (1,)),
    )
    options = {"actions": ("no", "yes"), "features": NAMES, "basis": basis}
    plan = {"evaluation": "cross-fitted"}
    with pytest.raises(fedopl.FedoplError, match="expected what 6 screenings found"):
        fedopl.Study(**options, **plan)
    with pytest.raises(fedopl.FedoplError, match="expected what 1 screenings found"):
        fedopl.Study(evaluation=0.25, **options)
    folds = fedopl.NuisancePlan(folds=2)
    with pytest.raises(fedopl.FedoplError, match="expected what 3 screenings found"):
        fedopl.Study(**options, **plan, nuisances=folds)


@pytest.mark.parametrize("caution", [0.0, 1.0])
def test_its_policy_is_valued_in_a_study_that_holds_rows_out(caution, tmp_path):
    basis = Basis(knots=KNOTS, screened_thresholds=2, products=NAMES)
    found = fedopl.learn(
        xor(1), basis=basis, evaluation=PLAN, policy=fedopl.Linear(caution=caution)
    )
    found.policy.save(tmp_path / "policy.json")
    policy = fedopl.load_policy(tmp_path / "policy.json")
    held_out = {"evaluation": EvaluationPlan(share=0.25)}
    agreed = found.study.before_screening.model_copy(update=held_out)
    doors = {name: Door(name, own, agreed, secret=SEED_ALONE) for name, own in xor(2).items()}
    record = evaluate_policies(Conversation(agreed, InProcess(doors)), {"it": policy})
    assert record.study.basis == found.study.basis.of_screening(-1) != found.study.basis
    assert record.values.of("it").n_rows < 310
    assert np.array_equal(record.policy.decide(FRESH), policy.decide(FRESH))


@pytest.mark.parametrize("numbers", [NAMES[:1], NAMES[:2], NAMES])
@pytest.mark.parametrize("folds", [2, 5, 20])
def test_nothing_is_larger_than_with_the_most_that_screenings_may_find(numbers, folds):
    knots = dict.fromkeys(numbers, (-1.0, 0.0, 1.0))
    study = fedopl.Study(
        actions=("no", "yes"),
        features=NAMES,
        basis=Basis(knots=knots, screened_pairs=2, screened_thresholds=20),
        evaluation="cross-fitted",
        nuisances=fedopl.NuisancePlan(folds=folds),
    )
    most = with_most_found(study)
    assert len(most.basis.found_by_fold) == len(study.left_out) == folds + 1
    assert most.n_terms <= study.most_terms
    assert [len(most.basis.of_screening(one).found_thresholds) for one in range(folds + 1)] == (
        [20] * (folds + 1)
    )
    asked = TakeFound.of(most)
    assert asked.study_after(study) == most
    assert len(codec.encode(stamped(asked, bytes(32), 0))) <= largest_query(study)


def test_without_a_fold_models_are_those_of_sums_without_the_terms_found_with_it():
    basis = Basis(
        knots={"x0": (-1.0, 0.0, 1.0)},
        screened_thresholds=2,
        found_thresholds=[(("x0", 0.2),), (("x0", 0.4),), (("x0", -0.2),)],
        found_by_fold=((0,), (1, 2), (0, 1)),
    )
    terms = Terms(basis, NAMES)
    rng = np.random.default_rng(0)
    of_terms = terms.of(rng.standard_normal((300, 4)))
    rows = np.column_stack([of_terms, np.ones(300), rng.standard_normal(300)])
    sums = np.stack([[own.T @ own] for own in (rows[:150], rows[150:])])
    found = of_usable_by_fold(least_squares.sums_of_others(sums, and_of_all=True), terms)
    for screening, (part, unused) in enumerate(
        zip(found, (["x0 > 0.4", "x0 > -0.2"], ["x0 > 0.2"], ["x0 > -0.2"]), strict=True)
    ):
        kept = [place for place, name in enumerate(terms.names) if name not in unused]
        assert terms.usable(terms.n_terms, [screening]).tolist() == kept
        others = rows[[np.s_[150:], np.s_[:150], np.s_[:]][screening]][:, [*kept, -2, -1]]
        expected = least_squares.ordinary((others.T @ others)[None])
        models = least_squares.ordinary(part)
        assert models.coefficients[:, kept] == pytest.approx(expected.coefficients, abs=1e-7)
        assert np.delete(models.coefficients, kept, axis=1) == pytest.approx(0, abs=1e-9)
    assert terms.usable(terms.n_terms, [0, 1]).tolist() == [
        place for place, name in enumerate(terms.names) if " > " not in name
    ]
