"""Law: mixtures that a run finds are found without each fold, as by a plain loop over folds."""

import by_hand
import numpy as np
import pytest
from scipy.stats import t as student

import fedopl
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.answers.valuing import estimate_values
from fedopl.client.answers.valuing.estimate_values import estimate
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.evaluation.policy_values import Value
from fedopl.report.page import render
from fedopl.results.value_tables import BEST_ARM
from fedopl.server import policy_comparison
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.server.learn_by_fold import learn_by_fold

pytestmark = pytest.mark.usefixtures("without_figures")

FOLDS = range(5)
ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
NUISANCES = fedopl.NuisancePlan(propensity="marginal")
ROWS = {"x": 110, "y": 163, "z": 140}
# What the first feature does for the third arm, by client.
SLOPES = {"x": -1.0, "y": 1.0, "z": 0.4}
CONTEXTS = np.random.default_rng(99).standard_normal((2000, 3))


def logged(rng, name, n_rows, **given):
    contexts = rng.standard_normal((n_rows, 3))
    actions = rng.integers(0, 3, n_rows)
    rewards = SLOPES[name] * contexts[:, 0] * (actions == 2) + 0.2 * (actions == 1)
    rewards += rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, action_names="abc", **given)


def made(seed, *, weighted=False):
    rng = np.random.default_rng(seed)
    each = {name: {"weights": rng.integers(1, 4, n) / 2} for name, n in ROWS.items()}
    given = each if weighted else {}
    return {name: logged(rng, name, n, **given.get(name, {})) for name, n in ROWS.items()}


def in_threes(seed):
    """Regions of three clients."""
    each = [made(seed + more) for more in range(3)]
    return {name: {f"{name}{k}": own[name] for k, own in enumerate(each)} for name in ROWS}


@pytest.fixture
def seen(monkeypatch):
    """Each client's workspace, and the policies that were learned without each fold."""
    found = {"spaces": {}, "by fold": []}

    def valued(space, *asked):
        found["spaces"][space.client] = space
        return estimate(space, *asked)

    def together(setting, price):
        found["by fold"] = learn_by_fold(setting, price)
        return found["by fold"]

    monkeypatch.setattr(estimate_values, "estimate", valued)
    monkeypatch.setattr(policy_comparison, "learn_by_fold", together)
    return found


def learned(clients, mixture, **options):
    """Under the limits that clients have unless they say otherwise."""
    options = {"basis": "linear", "personal": "none", **options}
    run = fedopl.learn(clients, mixture=mixture, limits=Limits(), nuisances=NUISANCES, **options)
    assert run.study.evaluation.is_cross_fitted  # what "auto" takes
    assert not run.refusals
    return run


# --- by hand --------------------------------------------------------------------------------------


class Party:
    """The rows of a client, or of the members of a region together."""

    def __init__(self, *spaces):
        self.parts = [(space.n_training, *of_space(space)) for space in spaces]
        self.valued = [
            (space.n_training, *of_space(space, chunk.scores))  # by weights that nobody limited
            for space in spaces
            for chunk in space.scored.evaluated(space.unscored_chunks())
        ]
        self.n_rows = sum(n for n, *_ in self.parts)

    def design(self, folds):
        """Terms, scores and weights of the rows in these folds; the weights add up to one."""
        kept = [
            (x[own], scores[own], n / self.n_rows * weights[own] / weights.sum())
            for n, x, scores, weights, fold in self.parts
            for own in [np.isin(fold, list(folds))]
        ]
        x, scores, weights = (np.concatenate([one[k] for one in kept]) for k in range(3))
        return np.column_stack([x, np.ones(len(x))]), scores, weights / weights.sum()

    def worth(self, decide, folds):
        """The mean score of what is decided, and its variance, in rows of these folds."""
        value, variance, count = 0.0, 0.0, 0
        for n, x, scores, weights, fold in self.parts:
            own = np.isin(fold, list(folds))
            each = scores[own][np.arange(own.sum()), decide(x[own])]
            shares = weights[own] / weights[own].sum()
            mean = shares @ each
            spread = shares**2 @ (each - mean) ** 2 * own.sum() / (own.sum() - 1)
            value += n / self.n_rows * mean
            variance += (n / self.n_rows) ** 2 * spread
            count += own.sum()
        return value, variance, count

    def gain(self, decide, other, folds):
        """The same of how much more one is worth than another, row by row."""
        apart = Party()
        apart.n_rows = self.n_rows
        apart.parts = [
            (n, x, contrast(scores, decide(x), other(x)), weights, fold)
            for n, x, scores, weights, fold in self.parts
        ]
        return apart.worth(lambda x: np.zeros(len(x), int), folds)


def of_space(space, scores=None):
    data, folds = space.whole.data, space.whole.folds.of_row
    scores = space.whole.scores if scores is None else scores
    return data.contexts, scores, data.weights_of(slice(None)), folds


def contrast(scores, one, other):
    rows = np.arange(len(scores))
    return (scores[rows, one] - scores[rows, other])[:, None]


def least_squares(parties, weights, folds):
    """The linear policy of the rows in these folds, by weights of parties."""
    designs = {name: parties[name].design(folds) for name, weight in weights.items() if weight}
    x = np.vstack([own[0] for own in designs.values()])
    scores = np.vstack([own[1] for own in designs.values()])
    counted = np.concatenate([weights[name] * own[2] for name, own in designs.items()])
    root = np.sqrt(counted)[:, None]
    solved = np.linalg.lstsq(x * root, scores * root, rcond=None)[0]
    return lambda contexts: (contexts @ solved[:-1] + solved[-1]).argmax(axis=1)


def others(*left_out):
    return [fold for fold in FOLDS if fold not in left_out]


def minimax(parties, fold, n_steps, solve=least_squares):
    """The weights and the policy of an ascent without a fold."""
    folds = others(fold)
    return by_hand.ascent(
        counts(parties),
        lambda weights: solve(parties, weights, folds),
        lambda decide: {name: own.worth(decide, folds)[0] for name, own in parties.items()},
        n_steps,
    )


def path(parties, fold, toward, solve=least_squares):
    """The weights of the α that is best for a party in the first other fold, and their policy."""
    kept = next(one for one in FOLDS if one != fold)
    start = counts(parties)
    skewed = [
        {name: w + alpha * ((name == toward) - w) for name, w in start.items()} for alpha in ALPHAS
    ]
    policies = [solve(parties, weights, others(fold, kept)) for weights in skewed]
    gains = [parties[toward].gain(decide, policies[0], [kept]) for decide in policies]
    best = max(range(len(ALPHAS)), key=lambda place: gains[place][0])
    value, variance, count = gains[best]
    low = value - student.ppf(0.95, count - 1) * np.sqrt(variance)
    place = best if low > 0 else 0
    return skewed[place], solve(parties, skewed[place], others(fold))


def counts(parties):
    total = sum(own.n_rows for own in parties.values())
    return {name: own.n_rows / total for name, own in parties.items()}


SEARCHES = {
    "minimax": (fedopl.mixture.minimax(8), lambda parties, fold: minimax(parties, fold, 8)),
    "path": (fedopl.mixture.path("x"), lambda parties, fold: path(parties, fold, "x")),
}


def check(run, decided, parties, search):
    """What is delivered, what values each fold, and its values are those by hand."""
    found = [search(parties, fold) for fold in [*FOLDS, None]]
    for policy, (_, decide) in zip(decided, found, strict=True):
        assert np.array_equal(policy(CONTEXTS), decide(CONTEXTS))
    weights = [own for own, _ in found]
    assert run.mixture == pytest.approx(weights[-1], rel=1e-9)
    assert any(own != pytest.approx(weights[-1], abs=0.01) for own in weights[:-1])
    check_values(run, parties, [decide for _, decide in found[:-1]], run.valued_as)
    if not run.study.policy.compares_candidates:
        arms = [best_arm(parties, own, f) for f, own in zip([*FOLDS, None], weights, strict=True)]
        assert (BEST_ARM in {row.policy for row in run.values.rows}) == (len({*arms}) > 1)
        if len({*arms}) > 1:
            each = [lambda x, arm=arm: np.full(len(x), arm) for arm in arms[:-1]]
            check_values(run, parties, each, BEST_ARM)


def best_arm(parties, weights, fold):
    """The action with the largest mean score in the mixture, without the rows of a fold."""
    designs = {name: own.design(others(fold)) for name, own in parties.items()}
    means = sum(weights[name] * own[1].T @ own[2] for name, own in designs.items())
    return int(means.argmax())


def check_values(run, parties, decided, name):
    total = 0.0
    for client, own in parties.items():
        value = sum(
            n / own.n_rows * np.average(by_fold(scores, x, fold, decided), weights=weights)
            for n, x, scores, weights, fold in own.valued
        )
        assert run.values.of(name, client).value == pytest.approx(value, rel=1e-9)
        total += run.mixture[client] * value
    assert run.values.of(name).value == pytest.approx(total, rel=1e-9)


def by_fold(scores, x, fold, decided):
    """Each row's score of what the policy for its fold decides."""
    each = np.stack([decide(x) for decide in decided])[fold, np.arange(len(x))]
    return scores[np.arange(len(x)), each]


def check_without(one, found, mixture, parties):
    """What the others lose or gain by what they would learn without a client, for each fold."""
    rest = {name: own for name, own in parties.items() if name != one.client}
    shares = {name: mixture[name] / sum(mixture[n] for n in rest) for name in rest}
    then, now = (
        [
            least_squares(own, {name: weights[name] for name in own}, others(fold))
            for fold, weights in zip(FOLDS, found, strict=True)
        ]
        for own in (rest, parties)
    )
    apart = 0.0
    for name, own in rest.items():
        for _, x, scores, weights, fold in own.valued:
            gains = by_fold(scores, x, fold, then) - by_fold(scores, x, fold, now)
            apart += shares[name] * np.average(gains, weights=weights)
    assert one.difference.value == pytest.approx(apart, rel=1e-9, abs=1e-12)


# --- linear policies ------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", SEARCHES)
def test_weights_of_linear_policies_are_found_without_each_fold(kind, weighted, seen):
    mixture, search = SEARCHES[kind]
    run = learned(made(3, weighted=weighted), mixture)
    parties = {name: Party(space) for name, space in sorted(seen["spaces"].items())}
    check(run, [own.decide for own in (*seen["by fold"], run.policy)], parties, search)
    found = [search(parties, fold)[0] for fold in FOLDS]
    for one in run.reliance.left_out:
        check_without(one, found, run.mixture, parties)


@pytest.mark.parametrize("kind", SEARCHES)
def test_weights_of_regions_are_found_without_each_fold(kind, seen):
    mixture, search = SEARCHES[kind]
    regions = in_threes(4)
    run = learned(regions, mixture, evaluation={"describe": False})
    members = {
        name: Party(*(seen["spaces"][member] for member in regions[name])) for name in regions
    }
    check(run, [own.decide for own in (*seen["by fold"], run.policy)], members, search)


def test_personal_policies_start_from_others_by_the_weights_of_their_fold(seen, monkeypatch):
    told, answer = {}, HANDLERS[Value]

    def spy(space, query):
        told[space.client] = query
        return answer(space, query)

    monkeypatch.setitem(HANDLERS, Value, spy)
    mixture, search = SEARCHES["minimax"]
    run = learned(made(3), mixture, personal="ridge")
    parties = {name: Party(space) for name, space in sorted(seen["spaces"].items())}
    weights = [search(parties, fold)[0] for fold in [*FOLDS, None]]
    for client, query in told.items():
        for version, fold in enumerate([*FOLDS, None]):
            rest = {name: w for name, w in weights[version].items() if name != client}
            expected = least_squares(parties, rest, others(fold))
            sent = fedopl.LinearPolicy.from_numbers(query.others[version], run.study)
            assert np.array_equal(sent.decide(CONTEXTS), expected(CONTEXTS))


# --- candidates -----------------------------------------------------------------------------------

CANDIDATES = {
    "low": lambda x: np.where(x[:, 0] < -0.3, 2, 1),
    "high": lambda x: np.where(x[:, 0] > 0.2, 2, 1),
    "third": lambda x: np.where(x[:, 1] > 0, 2, 0),
    **{f"everybody gets {a}": lambda x, k=k: np.full(len(x), k) for k, a in enumerate("abc")},
}


def best_candidate(parties, weights, folds):
    def worth(decide):
        return sum(weights[name] * own.worth(decide, folds)[0] for name, own in parties.items())

    return max(CANDIDATES.values(), key=worth)


AMONG = {
    "minimax": lambda parties, fold: minimax(parties, fold, 8, best_candidate),
    "path": lambda parties, fold: path(parties, fold, "x", best_candidate),
}


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("in_regions", [False, True], ids=["clients", "regions"])
def test_weights_among_candidates_are_found_without_each_fold(kind, in_regions, seen):
    rules = {name: own for name, own in CANDIDATES.items() if "everybody" not in name}
    options = {"policy": fedopl.Finite(candidates=rules), "evaluation": {"describe": False}}
    regions = in_threes(4) if in_regions else {name: {name: own} for name, own in made(5).items()}
    clients = regions if in_regions else made(5)
    run = learned(clients, SEARCHES[kind][0], **options)
    spaces = seen["spaces"]
    parties = {name: Party(*(spaces[one] for one in own)) for name, own in regions.items()}
    decided = [CANDIDATES[name] for name in (*seen["by fold"], run.chosen)]
    check(run, decided, parties, AMONG[kind])


# --- what is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("policy", ["linear", "finite"])
def test_no_trip_more_is_needed_than_with_rows_held_out(kind, policy):
    mixture, _ = SEARCHES[kind]
    options = {"basis": "linear", "policy": policy, "nuisances": NUISANCES, "personal": "none"}
    runs = [
        fedopl.learn(made(3), mixture=mixture, evaluation=evaluation, limits=Limits(), **options)
        for evaluation in ("cross-fitted", 0.25)
    ]
    for run in runs:
        assert len(run.rounds) <= expected_exchanges(run.study, 3)
        assert run.rounds[-1].trip + 1 <= expected_trips(run.study, 3)
        asked = sum(one.query == "Value" for one in run.rounds)
        assert asked <= Value.most(run.study)
        if kind == "path":
            assert asked == Value.most(run.study)
            assert run.rounds[-1].trip + 1 == expected_trips(run.study, 3)
            assert len(run.rounds) == expected_exchanges(run.study, 3)
    by_fold, held_out = (expected_trips(run.study, 3) for run in runs)
    assert by_fold == held_out


def test_steps_of_all_ascents_share_a_trip():
    run = learned(made(3), fedopl.mixture.minimax(40))
    trips = [one.trip for one in run.rounds if one.query == "Value"]
    *climbed, last = sorted({*trips})
    together = [trips.count(trip) for trip in climbed]
    assert together == sorted(together, reverse=True)
    assert together[0] == 6
    assert together[-1] < 6  # those that have converged ask no more
    # Everybody's own policies, then steps, and at last the policy of averaged weights.
    assert 1 + len(run.search.trace) + 1 <= len(climbed) <= 1 + 40 + 1
    assert trips.count(last) == 1


def test_the_page_says_for_which_weights_folds_are_valued():
    page = render(learned(made(3), fedopl.mixture.path("x")))
    assert "values each fold by a policy for weights that were found without it" in page
    assert "held-out" not in page


def test_with_two_folds_a_path_holds_rows_out():
    plan = fedopl.NuisancePlan(propensity="marginal", folds=2)
    clients, mixture = made(3), fedopl.mixture.path("x")
    run = fedopl.learn(clients, basis="linear", mixture=mixture, nuisances=plan)
    assert run.study.evaluation.kind == "held-out"
    options = {"mixture": mixture, "nuisances": plan, "evaluation": "cross-fitted"}
    with pytest.raises(fedopl.OptionError, match="there have to be 3 folds"):
        fedopl.learn(clients, basis="linear", **options)
