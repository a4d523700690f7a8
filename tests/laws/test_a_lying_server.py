"""Whatever a server asks, within default limits no single row comes out of a client's door."""

from collections import Counter

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, servers_of, study_with, with_row

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import MemoryStore
from fedopl.messages.diagnosis.classifier_sums import ClassifyContexts
from fedopl.messages.diagnosis.client_models import TellModels
from fedopl.messages.diagnosis.model_shifts import CompareModels
from fedopl.messages.evaluation.policy_fields import most_candidates
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues
from fedopl.messages.learning.improved_policy import ImprovePolicy
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.pair_sums import SumPairs
from fedopl.messages.learning.score_sums import SumFitting, SumScores
from fedopl.messages.learning.score_sums_by_fold import SumByFold
from fedopl.messages.learning.total_weight import TellWeight
from fedopl.messages.learning.value_slope import SlopeOfValue
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.messages.trees.bin_counts import N_FINE_BINS, CountBins
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.leaf_values import ValueLeaves
from fedopl.policies.trees.nodes import Branch, Leaf, as_array
from fedopl.study.training_plans import TrainingPlan

N_MODELS = 6  # one for each fold, and one from all


# --- refusals -------------------------------------------------------------------------------------


def reasons_of_overflows(data, n_queries=40):
    """The codes of a search for max |c·x|: models so large that rows beyond a bound overflow."""
    server = LyingServer(data)
    direction = np.zeros(N_FEATURES + 1)
    direction[0] = 1.0
    low, high, reasons = 0.0, 20.0, []
    for _ in range(n_queries):
        bound = (low + high) / 2
        models = np.tile(direction * (1.7e308 / bound), (N_MODELS, len(ACTIONS), 1))
        supported = np.tile([1.0, 0.0, 0.0], (N_MODELS, 1))
        answer = server.ask(SumScores, models=models, supported=supported)
        reasons.append(answer.reason.name if isinstance(answer, Refusal) else "answered")
        if reasons[-1] in ("NOT_FINITE", "NORM_TOO_LARGE"):  # no row overflows: none is beyond
            high = bound
        else:
            low = bound
    return reasons, bound


def test_refusals_of_numbers_too_large_do_not_depend_on_the_rows():
    reasons, _ = reasons_of_overflows(rows())
    assert set(reasons) == {"MALFORMED"}


def test_a_refusal_tells_nothing_but_that_and_costs_what_an_answer_costs():
    data = rows()
    server = LyingServer(data, study_with(policy=fedopl.Linear(oracle="direct"))).score()
    reasons = Counter()
    for step in range(200):
        parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
        parameters[0, 0] = 10.0 ** (step / 40)
        answer = server.ask(SlopeOfValue, temperature=0.01, parameters=parameters)
        reasons[answer.reason.name if isinstance(answer, Refusal) else "answered"] += 1
    assert set(reasons) <= {"answered", "WITHHELD", "BUDGET_SPENT", "LOCKED"}
    assert reasons["WITHHELD"] + reasons["answered"] <= server.door.limits.slope_queries


# --- values ---------------------------------------------------------------------------------------


def around(server, person, rng):
    """S, S′, all and none, where half-spaces S and S′ share one person; always in other words.

    For their scores, S + S′ − all − none is zero in every row but that person's.
    """
    direction = rng.standard_normal(N_FEATURES)
    at = float(direction @ person)
    reach = 1e-6 * max(1.0, abs(at))
    flat, offset = np.zeros(N_FEATURES), -rng.uniform(1, 2)
    alike = [server.half_space(flat, offset, code, 2) for code in (1, 0)]
    above = server.half_space(direction, at - reach, 1, 0)
    below = server.half_space(-direction, -(at + reach), 1, 0)
    return above, below, *alike


def from_values(answer, signs):
    """The effect on the person, D = Γ(1) − Γ(0), from means."""
    return answer.n_rows * float(answer.means[: len(signs)] @ signs)


def from_covariances(answer, signs):
    """D·(Γ(1) − its mean), from the covariances with all policies that treat the person."""
    treating = np.isin(np.arange(len(signs)) % 4, [0, 1, 2])
    crossed = answer.covariances[: len(signs), : len(signs)]
    return answer.n_rows**2 * float(signs @ crossed @ treating) / treating.sum()


def averaged(server, person, rng):
    """What differencing comes to, either way, when all of a study's budget goes into one person."""
    share = int(N_HELD_OUT * server.door.limits.parameter_share) - N_OWN_CANDIDATES
    found, at_once = [], min(most_candidates(server.study), share) // 4
    while True:
        asked = [policy for _ in range(at_once) for policy in around(server, person, rng)]
        fields = server.policies(*asked)
        answer = server.ask(EstimateValues, split=RowSplit.EVALUATION, **fields)
        if isinstance(answer, Refusal):
            assert answer.reason.name == "BUDGET_SPENT"
            return np.mean(found, axis=0)
        signs = np.tile([1.0, 1.0, -1.0, -1.0], at_once)
        ways = from_values(answer, signs), from_covariances(answer, signs)
        found.append(np.array(ways) / at_once)


COMPARING = study_with(joining=fedopl.JoiningPlan(diagnose=True))
N_HELD_OUT = 250


@pytest.mark.parametrize("study", [study_with(), COMPARING], ids=["few", "many"])
def test_values_of_policies_that_overlap_in_one_person_do_not_tell_of_them(study):
    n_people = 60 if study is COMPARING else 150
    data, rng = rows(4 * N_HELD_OUT), np.random.default_rng(1)
    server = servers_of(data, study)
    space = server().door._space
    held_out = np.arange(space.n_training, data.n_rows)
    held_out = held_out[space.data.actions[held_out] < 2][:n_people]  # whose effect is not zero
    scores, treated = space.scores[held_out], space.scores[space.n_training :, 1].mean()
    effects = scores[:, 1] - scores[:, 0]
    people = space.data.contexts[held_out]
    asking = np.array([averaged(server(), p, rng) for p in people])
    absent = np.array([averaged(server(), p + 0.5, rng) for p in people])
    for way, sought in enumerate((effects, effects * (scores[:, 1] - treated))):
        explained = np.corrcoef(asking[:, way], sought)[0, 1] ** 2
        right = (np.abs(asking[:, way])[:, None] > np.abs(absent[:, way])).mean()
        print(f"r² = {explained:.2f} with what is sought; {right:.0%} right about who is there")
        # Without noise, what is found is what is sought, and zero for those who are absent.
        assert explained < (0.5 if study is COMPARING else 0.3)
        # Nor do the answers say who is there: sorted by size, the two kinds are mixed up.
        assert right < 0.65


def moved_by_a_needle(data, person):
    """Whether answers about a half-space move when its border passes one person by."""
    server = LyingServer(data).score()
    direction = np.array([1.0, 0.3, -0.2, 0.1])
    at = float(direction @ person)
    edges = [server.half_space(direction, at + side * 1e-6, 1, 0) for side in (-1, 1)]
    answer = server.ask(EstimateValues, split=RowSplit.EVALUATION, **server.policies(*edges))
    return answer.means[0] != answer.means[1]


def test_answers_that_stay_the_same_do_not_say_that_nobody_is_in_between():
    data = rows(400)
    there = [moved_by_a_needle(data, person) for person in data.contexts[:20]]
    absent = [moved_by_a_needle(data, person + 0.37) for person in data.contexts[:20]]
    assert np.mean(there) == np.mean(absent)


def test_a_query_is_about_as_many_policies_as_the_study_can_need_in_all_fields_together():
    server = LyingServer(rows()).score()
    fields = server.policies(*np.zeros((4, len(ACTIONS), N_FEATURES + 1)))
    fields["pairwise"] = np.zeros((4, 3, N_FEATURES + 1))
    answer = server.ask(EstimateValues, split=RowSplit.EVALUATION, **fields)
    assert answer.reason.name == "MALFORMED"


# --- two studies, two states of the rows ----------------------------------------------------------


def sums_of_everybody(data, **changes):
    """Σ w·zzᵀ over all training rows, as the server can add it up."""
    server = LyingServer(data, study_with(**changes))
    answer = server.ask(SumOutcomes)
    assert not isinstance(answer, Refusal)
    return answer.sums.sum(axis=(0, 1))


def rank_of(difference):
    """The rank of a difference of sums: one if it is a single row's."""
    sizes = np.linalg.eigvalsh(difference)
    return int((np.abs(sizes) > 1e-6 * np.abs(sizes).max()).sum())


def test_studies_that_hold_out_one_row_more_do_not_differ_by_that_row():
    data = rows(300)
    apart = sums_of_everybody(data, evaluation=0.25) - sums_of_everybody(
        data, evaluation=0.25 + 1 / 300
    )
    assert rank_of(apart) == N_FEATURES + 2


def test_studies_that_differ_in_their_name_alone_do_not_share_a_split():
    data = rows(300)
    apart = sums_of_everybody(data, name="one") - sums_of_everybody(data, name="other")
    assert rank_of(apart) == N_FEATURES + 2


def test_without_held_out_rows_two_studies_have_one_history():
    """Cells of two studies, whose cuts pass one person by, would differ by that person."""
    data, store = rows(300), MemoryStore()
    found = []
    for name, cut in (("one", 0.0), ("other", 1e-9)):
        study = study_with(name=name, policy="tree", evaluation=0)
        server = LyingServer(data, study, store=store).score()
        n_cuts, cuts = np.ones(N_FEATURES), np.full(N_FEATURES, cut)
        answer = server.ask(SumCells, partition=as_array(Leaf(0)), n_cuts=n_cuts, cuts=cuts)
        found.append(answer.reason.name if isinstance(answer, Refusal) else "answered")
    assert found == ["answered", "BUDGET_SPENT"]


def test_one_more_person_changes_which_rows_are_held_out():
    data = rows(300)
    more = with_row(data, [0.1, 0.2, 0.3, 0.4], 1, 7.0)
    assert rank_of(sums_of_everybody(more) - sums_of_everybody(data)) == N_FEATURES + 2


# --- saturated models -----------------------------------------------------------------------------


def test_classifiers_that_are_sure_of_everybody_are_not_answered():
    data = rows()
    server = LyingServer(data, study_with(joining=True)).score()
    person = data.contexts[7]
    steep = 1e12 * np.array([[1, 0, 0, 0, -person[0] + 1e-9], [1, 0, 0, 0, -person[0] - 1e-9]])
    answer = server.ask(ClassifyContexts, split=RowSplit.TRAINING, parameters=steep)
    assert isinstance(answer, Refusal) or not answer.pulls.any()


def test_slopes_that_underflow_for_an_action_are_not_answered():
    data = rows()
    server = LyingServer(data, study_with(policy=fedopl.Linear(oracle="direct"))).score()
    parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
    parameters[2, -1] = -1e6
    answer = server.ask(SlopeOfValue, temperature=1.0, parameters=parameters)
    assert answer.reason.name == "WITHHELD"


def test_gains_that_change_sign_at_one_row_are_not_summed():
    data = rows(300)
    server = LyingServer(data, study_with(policy=fedopl.Linear(oracle="wap")))
    space = server.door._space
    second, first = np.sort(space.data.contexts[space.training, 0])[-2:]
    models = np.zeros((N_MODELS, len(ACTIONS), N_FEATURES + 1))
    models[:, 0, 0], models[:, 0, -1] = 1e6, -1e6 * (first + second) / 2
    server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    assert server.ask(SumPairs).reason.name == "WITHHELD"


def test_the_outcome_of_the_only_one_who_would_not_get_what_nobody_took_is_hidden():
    data = rows(400)
    taken = data.actions % 2
    data = fedopl.LoggedData(data.contexts, taken, data.rewards, action_names=ACTIONS)
    space = LyingServer(data).score().door._space
    people = np.arange(space.n_training, 400)[:60]
    found = []
    for person in people:
        server = LyingServer(data).score()
        direction = space.data.contexts[person]
        policy = server.half_space(direction, float(direction @ direction) - 1e-6, 0, 2)
        answer = server.ask(EstimateValues, split=RowSplit.EVALUATION, **server.policies(policy))
        found.append(answer.n_rows * answer.means[0])
    assert np.corrcoef(found, space.scores[people, 0])[0, 1] ** 2 < 0.5


def test_leaves_of_one_tree_alone_are_valued():
    server = LyingServer(rows(), study_with(policy="tree")).score()
    one, other = (as_array(Branch(0, cut, Leaf(0), Leaf(1))) for cut in (0.0, 0.5))
    assert not isinstance(server.ask(ValueLeaves, tree=one), Refusal)
    assert server.ask(ValueLeaves, tree=other).reason.name == "BUDGET_SPENT"


def test_models_whose_signs_jump_at_one_person_do_not_tell_who_is_there():
    """Total variation takes the signs of models without a part, which jump where one likes."""
    rng = np.random.default_rng(5)
    server = LyingServer(rows(600), study_with(joining=True)).score()
    own, space = server.ask(TellModels), server.door._space
    people = np.vstack([space.data.contexts[:15], rng.standard_normal((15, N_FEATURES))])
    asked = []
    for person in people:
        direction = rng.standard_normal(N_FEATURES)
        for side in (-1e-4, 1e-4):
            propensities = own.propensities.copy()
            propensities[:-1, 0] += 1e-3 * np.append(direction, side - direction @ person)
            propensities[-1, 0, -1] += 1.0  # which many rows are behind
            asked.append(propensities)
    many = (len(asked), *[1] * own.propensities.ndim)
    answer = server.ask(
        CompareModels,
        propensities=np.array(asked),
        outcomes=np.tile(own.outcomes, many) + 0.1,
        variances=np.tile(own.variances, many[:-1]),
        supported=np.tile(own.supported, (len(asked), 1)),
    )
    jumps = np.abs(np.diff(answer.propensity_tv.reshape(-1, 2), axis=1))[:, 0]
    there, absent = jumps[:15], jumps[15:]
    assert 0.3 < (there[:, None] > absent).mean() < 0.7  # without noise, always


# --- rounds of local steps ------------------------------------------------------------------------


@pytest.fixture
def stepping():
    plan = TrainingPlan(rounds=5, local_steps=2, batch_size=64)
    study = study_with(policy=fedopl.Linear(oracle="csoaa-sgd", training=plan))
    return LyingServer(rows(), study).score()


def step(server, turn, start=0.0, centre=0.0, scale=1.0):
    width = N_FEATURES + 1
    answer = server.ask(
        ImprovePolicy,
        round=turn,
        parameters=np.full((len(ACTIONS), width), start),
        centre=np.full(width, centre),
        scale=np.full(width, scale),
    )
    return answer.reason.name if isinstance(answer, Refusal) else "answered"


def test_a_round_is_asked_once(stepping):
    assert step(stepping, 0) == "answered"
    assert {step(stepping, 0, start=start) for start in np.linspace(0.1, 1, 10)} == {"BUDGET_SPENT"}
    assert step(stepping, 1, start=0.5) == "answered"


def test_all_rounds_have_the_centre_and_scale_of_the_first(stepping):
    assert step(stepping, 0) == "answered"
    assert step(stepping, 1, centre=1.0) == "BUDGET_SPENT"
    assert step(stepping, 1, scale=2.0) == "BUDGET_SPENT"


# --- counts ---------------------------------------------------------------------------------------


def test_needle_bins_do_not_confirm_a_value():
    """Bins so narrow that a count above zero would say that somebody has just this value."""
    data = rows()
    held, absent = data.contexts[:100, 0], data.contexts[:100, 0] + 0.37
    needles = {}
    for name, values in (("held", held), ("absent", absent)):
        points = np.sort(values)
        pairs = np.sort(np.concatenate([points - 1e-9, points + 1e-9]))
        cuts = np.append(pairs, np.linspace(100, 200, N_FINE_BINS - 1 - len(pairs)))
        server = LyingServer(data, study_with(policy="tree"))
        answer = server.ask(CountBins, cuts=np.tile(cuts, (N_FEATURES, 1)))
        needles[name] = (answer.counts[0, 1:200:2] > 0).mean()
    # Three quarters of the held values are training rows; guessing by "above zero" gains little.
    assert needles["absent"] > 0.2
    assert needles["held"] - needles["absent"] < 0.25


# --- actions that a few took ----------------------------------------------------------------------


def with_takers(n_takers):
    """Rows of which only the first so many took the last action."""
    data = rows(400)
    actions = np.where(data.actions == 2, 0, data.actions)
    actions[:n_takers] = 2
    return fedopl.LoggedData(data.contexts, actions, data.rewards, action_names=ACTIONS)


def rows_of_takers(n_takers):
    """Σ Y·x over the takers of an action, from scores by models that say nothing; and the truth."""
    data = with_takers(n_takers)
    server = LyingServer(data, study_with(evaluation=0))
    models = np.zeros((N_MODELS, len(ACTIONS), N_FEATURES + 1))
    answer = server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    assert not isinstance(answer, Refusal)
    return answer.products[2], data.rewards[:n_takers] @ data.contexts[:n_takers]


def test_the_few_who_took_an_action_do_not_come_out_of_its_scores():
    for n_takers in (1, 2, 4):
        found, _ = rows_of_takers(n_takers)
        assert not found.any()
    found, truth = rows_of_takers(40)  # as many as there may be
    assert abs(np.corrcoef(found[:-1], truth)[0, 1]) > 0.9


def test_the_few_who_took_an_action_have_no_say_in_models_of_a_clients_own():
    """Where effects may bend, a client has models of its own beside those that came."""
    basis = fedopl.Basis(knots={"x0": (-1.0, 0.0, 1.0)})
    study = study_with(basis=basis, evaluation=0)
    for n_takers, is_told in ((3, False), (60, True)):
        data, answers = with_takers(n_takers), []
        for outcome in (data.rewards[:n_takers], 1_000.0):
            rewards = data.rewards.copy()
            rewards[:n_takers] = outcome
            changed = fedopl.LoggedData(data.contexts, data.actions, rewards, action_names=ACTIONS)
            models = np.zeros((study.n_outcome_models, len(ACTIONS), study.n_terms + 1))
            server = LyingServer(changed, study, secret=SEED_ALONE)  # with the same folds
            answers.append(
                server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
            )
        first, second = (answer.products for answer in answers)
        assert np.allclose(first, second) != is_told


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"evaluation": "cross-fitted"}, SumByFold),
        ({"evaluation": 0, "mixture": fedopl.mixture.path("north")}, SumFitting),
    ],
    ids=["fold by fold", "without the first fold"],
)
@pytest.mark.parametrize(("n_takers", "is_told"), [(12, False), (60, True), (3, True)])
def test_takers_of_an_action_are_many_or_none_in_every_part(changes, kind, n_takers, is_told):
    """Twelve takers are enough for all sums together, and two or three of them are in each fold."""
    server = LyingServer(with_takers(n_takers), study_with(**changes)).score()
    answer = server.ask(kind)
    told = "told" if not isinstance(answer, Refusal) else answer.reason.name
    assert told == ("told" if is_told else "WITHHELD")
    if n_takers == 3:  # too few anywhere: their scores are the model's, which says nothing
        assert not answer.products[..., 2, :].any()


# --- one row that outweighs the others ------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 1e5], ids=["from zero", "from afar"])
def test_a_row_with_a_typo_does_not_come_out_of_the_sums(offset):
    data = rows(300)
    contexts = data.contexts.copy()
    contexts[7, 0] = 12_345.0
    contexts[:, 0] += offset
    spoilt = fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=ACTIONS)
    server = LyingServer(spoilt, study_with(evaluation=0))
    answer = server.ask(SumOutcomes)
    if isinstance(answer, Refusal):
        return
    sums = answer.sums.sum(axis=(0, 1))
    sums[0, :] -= offset * sums[N_FEATURES]  # whoever has the sums may centre them
    sums[0, 0] -= offset * sums[0, N_FEATURES]
    found = np.divide(sums[0], sums[0, 0] ** 0.5, out=np.zeros(len(sums)), where=sums[0, 0] > 0)
    assert not np.allclose(found[1:N_FEATURES], contexts[7, 1:], atol=0.2)


BY_WEIGHT = study_with(
    nuisances=fedopl.NuisancePlan(kind="local", propensity="marginal"),
    mixture=fedopl.mixture.empirical(count="weight"),
    evaluation=0,
)


def weight_of_one(weight, secret, limits=None):
    """What the total tells of the only row that does not weigh one; None if it is not told."""
    data = rows(300)
    weights = np.ones(300)
    weights[7] = weight
    weighed = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, action_names=ACTIONS, weights=weights
    )
    server = LyingServer(weighed, BY_WEIGHT, secret=secret, limits=limits)
    answer = server.ask(TellWeight)
    assert server.ask(TellWeight).__dict__ | {"exchange": 0} == answer.__dict__  # asked again
    return None if isinstance(answer, Refusal) else answer.weight - 299


def test_the_weight_of_a_single_row_does_not_come_out_of_the_total():
    assert weight_of_one(9.0, "any", fedopl.Limits.open()) == pytest.approx(9)
    found = np.array([weight_of_one(9.0, f"secret {k}") for k in range(200)])
    assert np.sqrt(np.mean((found - 9) ** 2)) > 1.5 * 9
    others = np.array([weight_of_one(6.0, f"other secret {k}") for k in range(200)])
    # Whether it weighs nine or six, guessed by which the total is closer to.
    assert (np.mean(found > 7.5) + np.mean(others < 7.5)) / 2 < 0.65


def test_a_row_that_has_much_of_all_weight_keeps_the_total_at_home():
    assert weight_of_one(1000.0, "any") is None
    assert weight_of_one(60.0, "any") is None
    assert weight_of_one(9.0, "any") is not None


def row_with_its_own_propensity(data):
    """Features of the one row of action 0 whose known propensity is not 1/3, from two queries.

    Σ Γ(0)·x under models that say nothing is Σ 1{A = 0}·Y·x/p, and 3·Σ 1{A = 0}·Y·x is in the sums
    of outcomes: what is left is that row's own.
    """
    plan = fedopl.NuisancePlan(propensity="known")
    server = LyingServer(data, study_with(nuisances=plan, evaluation=0))
    outcomes = server.ask(SumOutcomes)
    models = np.zeros((N_MODELS, len(ACTIONS), N_FEATURES + 1))
    scores = server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    if isinstance(scores, Refusal):
        return scores.reason.name
    weighed = data.n_rows * scores.products[0] - 3 * outcomes.sums[:, 0, :-1, -1].sum(axis=0)
    return weighed[:-1] / weighed[-1]


def test_the_only_row_with_its_own_propensity_does_not_come_out_of_the_sums():
    data = rows(400)
    chances = np.full(data.n_rows, 1 / 3)
    own = int(np.flatnonzero(data.actions == 0)[5])
    chances[own] = 0.3
    chances[data.actions == 1] = 0.35  # many rows of another action, which hide nothing
    known = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, chances, action_names=ACTIONS
    )
    assert row_with_its_own_propensity(known) == "DOMINATED"
