"""What differential privacy costs a study, before any row is touched: from made-up rows.

Rows are made up in the sizes and ranges of the study: features normal with most values in their
ranges, outcomes linear with effects of usual size, and actions equally likely. What is learned from
them with noise is compared with what is learned with hardly any.
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
from fedopl.engines.learn import Running, learn
from fedopl.policies.linear import LinearPolicy
from fedopl.study.plans import Declared
from fedopl.study.policy_plans import Finite, Linear, Tree
from fedopl.study.private.privacy_plan import OF_FLAGS, PrivacyPlan
from fedopl.study.private.private_setting import (
    PrivateSetting,
    Scales,
    are_numbers,
    middles_and_units,
)
from fedopl.study.study import Study

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
NEARLY_NONE = 50.0  # an ε with hardly any noise
N_DRAWS = 5
N_FRESH = 10_000
# Deviations of outcomes by features and beside them, in units of the study.
_EFFECT, _NOISE = 0.6, 0.8


@dataclass(frozen=True, kw_only=True)
class Price:
    """What one ε costs: what the policy loses to the best, and how wide its value's interval is."""

    epsilon: float
    regret: float  # per decision, the mean over draws
    error: float  # its standard error
    half_width: float  # of the 95 % interval of the learned policy's value; NaN without one
    # The same at one client, in the middle of all, where values are read apart under masks.
    half_width_apart: float | None = None


@dataclass(frozen=True, kw_only=True)
class Noised:
    """Something that leaves with noise."""

    what: str
    times: int
    share: float  # of the budget, each time
    of_held_out: bool  # which have a budget of their own, of the same size
    noise: float  # its standard deviation, in units of the study


def noised(study: Study) -> list[Noised]:
    """All that leaves with noise; under masks, the noise of totals."""
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
    """The same as text."""
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
    """The price of each ε, and last that of hardly any noise, for clients of these sizes."""
    plan = _plan_of(study)
    return [_price(study, plan, sizes, epsilon) for epsilon in (*epsilons, NEARLY_NONE)]


def price_table(found: Sequence[Price]) -> str:
    """The same as text."""
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
    # Made-up tables have numbers alone; the promise to a person with rows is that to a row.
    flags = dict.fromkeys(study.features, OF_FLAGS)
    said = plan.model_dump() | {"epsilon": epsilon, "ranges": flags | plan.ranges}
    # Made-up clients have keys of their own.
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
    """Made-up rows in the ranges of a study, and what policies lose there."""

    def __init__(self, study: Study, plan: PrivacyPlan, draw: int) -> None:
        # Made-up outcomes are better the larger they are, whatever the study's own mean.
        self._study, self._draw = study, draw
        self._centre, self._unit = middles_and_units(study.features, plan.ranges)
        self._scales = Scales(self._centre, np.diag(1 / self._unit), plan.outcome)
        self._is_flag = ~are_numbers(study.features, plan.ranges)
        rng = generator_for(draw, purpose="made-up effects")
        slopes = rng.normal(size=(study.n_actions, study.n_features))
        self._slopes = _EFFECT * slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        self._levels = rng.normal(0, _EFFECT / 2, study.n_actions)
        # Trees are compared where a tree is right: one action is best in each of its leaves.
        self._asked = rng.choice(study.n_features, 2) if study.policy.on_grid else None
        self._leaves = rng.permutation(max(study.n_actions, 4)) % study.n_actions

    @property
    def policy(self) -> Linear | Tree | Finite:
        """A policy as the study's, for made-up columns that are all numbers."""
        study, plan = self._study, self._study.policy
        if isinstance(plan, Tree):
            return Tree(depth=plan.depth, refine=plan.refine)
        if not study.policy.compares_candidates:
            return study.linear
        # Each of the candidates is about as far from what is best as effects are large.
        rng = generator_for(self._draw, purpose="made-up candidates")
        found = {}
        for name in study.candidates:
            slopes = self._slopes + _EFFECT * rng.normal(size=self._slopes.shape)
            terms = np.column_stack([slopes / self._unit, self._levels])
            terms[:, -1] -= terms[:, :-1] @ self._centre
            found[name] = LinearPolicy(terms, study.actions, study.features)
        return Finite(candidates=found)

    def rows(self, n_rows: int, client: int) -> LoggedData:
        """A number of rows of a client."""
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
        """What these decisions lose to the best, or to the best candidate, on fresh contexts."""
        rng = generator_for(self._draw, purpose="made-up test")
        scaled = self._contexts(N_FRESH, rng)
        means = self._means(scaled)
        contexts, every = self._centre + self._unit * scaled, np.arange(N_FRESH)
        best = float(means.max(axis=1).mean())
        if isinstance(plan := self.policy, Finite):
            named = [means[every, own.decide(contexts)].mean() for own in plan.named.values()]
            best = float(max([*named, *means.mean(axis=0)]))
        # Sums in another order may differ in the last digits.
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
