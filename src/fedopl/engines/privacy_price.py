"""What differential privacy costs a study, from simulated rows, before any real row is used.

Rows are simulated in the sizes and ranges of the study. Features are normal, with most values in
their ranges. Outcomes are linear, with effects of usual size. Actions are equally likely. Policies
learned from these rows with noise are compared with policies learned with hardly any noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import GLOBAL
from fedopl.base.seeds import generator_for
from fedopl.base.tables import text_table
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.learn import learn
from fedopl.engines.run_in_memory import Running
from fedopl.policies.linear import LinearPolicy
from fedopl.study.plans import Declared
from fedopl.study.policy_plans import Finite, Linear, Tree
from fedopl.study.private.privacy_plan import OF_FLAGS, PrivacyPlan
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.private.private_units import Scales, are_numbers, middles_and_units
from fedopl.study.study import Study

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
NEARLY_NONE = 50.0  # an ε with hardly any noise
N_DRAWS = 5
N_FRESH = 10_000
# Standard deviations of outcomes explained by features, and of the rest, in units of the study.
_EFFECT, _NOISE = 0.6, 0.8


@dataclass(frozen=True, kw_only=True)
class Price:
    """What one ε costs: the policy's regret, and the width of the interval of its value."""

    epsilon: float
    regret: float  # per decision, the mean over draws
    error: float  # its standard error
    half_width: float  # of the 95 % interval of the learned policy's value; NaN without one
    # The same at single clients, as a median, if values are also read by client under masks.
    half_width_apart: float | None = None


@dataclass(frozen=True, kw_only=True)
class Noised:
    """One kind of noisy answer that leaves a client."""

    what: str
    times: int
    share: float  # of the budget, each time
    of_held_out: bool  # held-out rows have their own budget, of the same size
    noise: float  # its standard deviation, in units of the study


def noised(study: Study) -> list[Noised]:
    """Every kind of noisy answer; under masks, with the noise of the totals."""
    _plan_of(study)
    setting = PrivateSetting(study)
    return [
        Noised(
            what=one.part.what,
            times=one.part.times,
            share=one.part.share / one.part.times,
            of_held_out=one.of_held_out,
            noise=setting.deviation_read(name),
        )
        for name, one in setting.releases.items()
    ]


def noise_table(study: Study) -> str:
    """The kinds of noisy answers, as a text table."""
    rows = [
        [
            one.what,
            str(one.times),
            f"{one.share:.0%}{' (held-out rows)' * one.of_held_out}",
            f"{one.noise:.3g}",
        ]
        for one in noised(study)
    ]
    return text_table(["what leaves", "times", "share of the budget", "noise"], rows)


def prices(study: Study, sizes: Sequence[int], epsilons: Sequence[float] = EPSILONS) -> list[Price]:
    """The price of each ε for clients of these sizes; the last has hardly any noise."""
    plan = _plan_of(study)
    return [_price(study, plan, sizes, epsilon) for epsilon in (*epsilons, NEARLY_NONE)]


def price_table(found: Sequence[Price]) -> str:
    """The prices as a text table."""
    rows = [
        [
            "hardly any noise" if one.epsilon == NEARLY_NONE else f"{one.epsilon:g}",
            f"{one.regret:.3g} ± {one.error:.1g}",
            "" if one is found[-1] else f"{one.regret - found[-1].regret:.3g}",
            f"± {one.half_width:.3g}",
            *([] if one.half_width_apart is None else [f"± {one.half_width_apart:.3g}"]),
        ]
        for one in found
    ]
    headers = ["epsilon", "regret of the policy", "of it by noise", "interval of its value"]
    headers += ["at one client"] * (found[0].half_width_apart is not None)
    return text_table(headers, rows)


def _plan_of(study: Study) -> PrivacyPlan:
    if study.privacy is None:
        raise OptionError(
            "privacy: the study has none; add [privacy] with epsilon, outcome and ranges"
        )
    return study.privacy


def _price(study: Study, plan: PrivacyPlan, sizes: Sequence[int], epsilon: float) -> Price:
    regrets = []
    widths: list[float] = []
    apart: list[float] = []
    # Simulated tables have only numbers. Each simulated person has one row.
    flags = dict.fromkeys(study.features, OF_FLAGS)
    said = plan.model_dump() | {"epsilon": epsilon, "ranges": flags | plan.ranges}
    # Simulated clients get their own keys.
    said |= {"unit": "row", "most_rows_per_person": 1, "keys": {}}
    alone = PrivacyPlan.model_validate(said)
    for draw in range(N_DRAWS):
        world = _World(study, plan, draw)
        run = learn(
            {f"client {place}": world.rows(n_rows, place) for place, n_rows in enumerate(sizes)},
            policy=world.policy,
            privacy=alone,
            basis=study.basis,
            declared=Declared(overlap=study.declared.overlap),
            evaluation=study.evaluation.share,
            running=Running(secret=f"made-up rows {draw}"),
        )
        if run.policy is None:
            raise TypeError("a private study always ends with a policy")
        regrets.append(world.regret(run.policy.decide))
        for row in run.values.rows:
            if row.policy == run.chosen:
                low, high = row.estimate.interval()
                own = widths if row.client == GLOBAL else apart
                own.append((high - low) / 2)
    return Price(
        epsilon=epsilon,
        regret=float(np.mean(regrets)),
        error=float(np.std(regrets, ddof=1) / np.sqrt(N_DRAWS)),
        half_width=float(np.median(widths)) if widths else np.nan,
        half_width_apart=float(np.median(apart)) if apart and plan.values_apart else None,
    )


class _World:
    """Simulated rows in the ranges of a study, and the regret of policies on them."""

    def __init__(self, study: Study, plan: PrivacyPlan, draw: int) -> None:
        # Larger simulated outcomes are always better, also if the study minimises its outcome.
        self._study, self._draw = study, draw
        self._centre, self._unit = middles_and_units(study.features, plan.ranges)
        self._scales = Scales(self._centre, np.diag(1 / self._unit), plan.outcome)
        self._is_flag = ~are_numbers(study.features, plan.ranges)
        rng = generator_for(draw, purpose="made-up effects")
        slopes = rng.normal(size=(study.n_actions, study.n_features))
        self._slopes = _EFFECT * slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        self._levels = rng.normal(0, _EFFECT / 2, study.n_actions)
        # For trees, the truth is a tree: in each of its leaves, one action is best.
        self._asked = rng.choice(study.n_features, 2) if study.policy.on_grid else None
        self._leaves = rng.permutation(max(study.n_actions, 4)) % study.n_actions

    @property
    def policy(self) -> Linear | Tree | Finite:
        """The study's kind of policy, for simulated columns, which are all numbers."""
        study, plan = self._study, self._study.policy
        if isinstance(plan, Tree):
            return Tree(depth=plan.depth, refine=plan.refine)
        if not study.policy.compares_candidates:
            return study.linear
        # Each candidate differs from the best policy by about the size of effects.
        rng = generator_for(self._draw, purpose="made-up candidates")
        found = {}
        for name in study.candidates:
            slopes = self._slopes + _EFFECT * rng.normal(size=self._slopes.shape)
            terms = np.column_stack([slopes / self._unit, self._levels])
            terms[:, -1] -= terms[:, :-1] @ self._centre
            found[name] = LinearPolicy(terms, study.actions, study.features)
        return Finite(candidates=found)

    def rows(self, n_rows: int, client: int) -> LoggedData:
        """Simulated rows of a client."""
        rng = generator_for(self._draw, client=str(client), purpose="made-up rows")
        scaled = self._contexts(n_rows, rng)
        actions = rng.integers(self._study.n_actions, size=n_rows)
        means = self._means(scaled)[np.arange(n_rows), actions]
        outcomes = means + _NOISE * self._scales.outcome_unit * rng.normal(size=n_rows)
        return LoggedData(
            self._centre + self._unit * scaled,
            actions,
            outcomes,
            np.full(n_rows, 1 / self._study.n_actions),
            action_names=self._study.actions,
            feature_names=self._study.features,
        )

    def regret(self, decide: Callable[[FloatArray], IntArray]) -> float:
        """The regret of these decisions against the best ones, or the best candidate.

        It is measured on new contexts.
        """
        rng = generator_for(self._draw, purpose="made-up test")
        scaled = self._contexts(N_FRESH, rng)
        means = self._means(scaled)
        contexts, every = self._centre + self._unit * scaled, np.arange(N_FRESH)
        best = float(means.max(axis=1).mean())
        if isinstance(plan := self.policy, Finite):
            named = [means[every, own.decide(contexts)].mean() for own in plan.named.values()]
            best = float(max([*named, *means.mean(axis=0)]))
        # Rounded, as sums in another order may differ in the last digits.
        return max(0.0, round(best - float(means[every, decide(contexts)].mean()), 12))

    def _contexts(self, n_rows: int, rng: np.random.Generator) -> FloatArray:
        drawn = rng.normal(size=(n_rows, len(self._is_flag)))
        return np.where(self._is_flag, np.sign(drawn), drawn)

    def _means(self, scaled: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        if self._asked is None:
            found: FloatArray = scaled @ self._slopes.T + self._levels
        else:
            first, second = (scaled[:, self._asked] <= 0).T
            best = self._leaves[2 * first + second * (self._study.tree.depth > 1)]
            shared = scaled @ self._slopes[0] / 2
            found = shared[:, None] + _EFFECT * (best[:, None] == np.arange(self._study.n_actions))
        return self._scales.outcome_centre + self._scales.outcome_unit * found
