"""Differential privacy in a drafted study: ranges and overlap to confirm, and what noise costs.

Ranges are round numbers around the values of most rows, so that they show no single row's value.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.toml_file import toml_key
from fedopl.client.column_profiles import Profile
from fedopl.privacy.score_axes import longest_turned, noise_of_scores
from fedopl.study.plans import USUAL_SHARE
from fedopl.study.private.privacy_plan import EXACT, OF_FLAGS, PrivacyPlan, Range
from fedopl.study.private.private_setting import VALUE_SHARE, most_terms
from fedopl.study.private.private_units import likely_values

EPSILON = 8.0
_WIDTH = 100  # of a comment
# The quantiles that a drafted range includes, of a feature and of the outcome. Rows with features
# far beyond their ranges count for less; an outcome beyond its range is moved to the nearest end.
_MOST, _NEARLY_ALL = (0.02, 0.98), (0.002, 0.998)
# Where propensities are not known: no action is assumed to have been less likely anywhere than this
# part of its share. In any case, no overlap below the second number is drafted.
_LESS_LIKELY, _LEAST_OVERLAP = 0.25, 0.02


@dataclass(frozen=True, kw_only=True)
class DraftedPrivacy:
    """The declarations of a study with differential privacy."""

    plan: PrivacyPlan
    overlap: float
    sizes: Sequence[int]  # rows by client
    spread: float  # standard deviation of the outcome

    @classmethod
    def of(
        cls,
        features: Sequence[Profile],
        outcome: Profile,
        person: Profile | None,
        overlap: float,
        sizes: Sequence[int],
    ) -> "DraftedPrivacy":
        """The declarations for these features and outcome; `person` says whose each row is."""
        numbers = {p.name: _range_of(p) for p in features if p.numbers is not None or p.years}
        delta = min(1e-6, 10.0 ** -(2 + math.floor(math.log10(max(sizes)))))
        said = {"epsilon": EPSILON, "delta": delta, "ranges": numbers}
        if person is not None:
            mean = math.ceil(person.n_rows / len(person.labels))
            said |= {"unit": "person", "most_rows_per_person": mean}
        plan = PrivacyPlan.model_validate(
            said | {"outcome": _rounded(np.asarray(outcome.numbers), _NEARLY_ALL)}
        )
        spread = float(np.std(np.asarray(outcome.numbers)))
        return cls(plan=plan, overlap=overlap, sizes=sizes, spread=spread)

    @property
    def n_held_out(self) -> float:
        """The rows of all clients that values are of, by the usual share."""
        return USUAL_SHARE * sum(self.sizes)

    @property
    def noise_of_value(self) -> float:
        """The standard deviation of noise on the value of a policy, in the outcome's unit.

        Every client adds noise to its own answers.
        """
        moves = self.plan.most_rows_per_person * longest_turned(self.overlap)
        deviation = moves / (self.plan.mu * math.sqrt(VALUE_SHARE))
        deviation *= math.sqrt(noise_of_scores(self.overlap)[0, 0] * len(self.sizes))
        low, high = self.plan.outcome
        return deviation / self.n_held_out * (high - low) / 2

    @property
    def price(self) -> str:
        """What this noise costs a study of these rows, in words.

        With r times as many rows, variances are s²/r + z²/r²: s is by sampling, z by noise.
        """
        by_sampling = self.spread / math.sqrt(self.n_held_out)
        more = (1 + math.sqrt(1 + 4 * (self.noise_of_value / by_sampling) ** 2)) / 2
        return (
            f"epsilon = {EPSILON:g} would add noise of ±{self.noise_of_value:.2g} to the value of "
            f"a policy, where sampling alone gives the mean outcome ±{by_sampling:.2g}: as narrow "
            f"an interval would need {more:.2g} times as many rows"
        )

    @property
    def most_terms(self) -> float:
        """How many terms a basis may have, by public sizes."""
        return most_terms(self.plan, [round((1 - USUAL_SHARE) * n) for n in self.sizes])

    def likely_values(self, names: Sequence[str]) -> Mapping[str, FloatArray]:
        """Likely values of these numbers, given their ranges."""
        return likely_values(tuple(names), self.plan.ranges)

    def lines(self, confirm: str) -> Iterator[str]:
        """The lines of the study file; questions come after `confirm`, the mark and a colon."""
        ranges = {toml_key(name): range_in_toml(own) for name, own in self.plan.ranges.items()}
        question = "its noise hides rows from the server, too; without this section sums are exact"
        yield from ("", f"[privacy]  # {confirm}{question}")
        yield f"epsilon = {EPSILON:g}"
        yield f"delta = {self.plan.delta:g}"
        yield 'noise = "local"'
        if self.plan.unit == "person":
            yield 'unit = "person"'
            what = "of a person with more rows, only this many are used, the first ones"
            yield f"most_rows_per_person = {self.plan.most_rows_per_person}  # {confirm}{what}"
        yield f"outcome = {range_in_toml(self.plan.outcome)}  # {confirm}where all outcomes lie"
        if ranges:
            yield from ("", f"[privacy.ranges]  # {confirm}where most values lie")
            yield from (f"{name} = {own}" for name, own in ranges.items())
        yield from ("", "[declared]")
        yield f"overlap = {self.overlap:g}  # {confirm}was no action ever less likely than this?"

    def commented(self) -> Iterator[str]:
        """The same as a comment of an exact study, with what it promises and would cost."""
        text = f"{EXACT}. [privacy] promises more: {self.price}. `fedopl init --private` drafts it."
        yield from ("", *wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# "))
        yield from (f"# {line}".rstrip() for line in self.lines(""))


def range_in_toml(own: Range) -> str:
    """A range as TOML writes it."""
    return f"[{own[0]:g}, {own[1]:g}]"


def drafted_overlap(propensity: Profile | None, shares: Sequence[float]) -> float:
    """The smallest propensity of any action: as known, or else a part of the smallest share."""
    if propensity is not None and propensity.numbers is not None:
        least = float(propensity.numbers.min())
    else:
        least = _LESS_LIKELY * min(shares)
    digits = 1 - math.floor(math.log10(least))
    return max(math.floor(least * 10.0**digits) / 10.0**digits, _LEAST_OVERLAP)


def _range_of(profile: Profile) -> Range:
    if profile.years:
        return 0.0, 366.0 * (profile.years[1] - profile.years[0] + 1)
    return _rounded(np.asarray(profile.numbers), _MOST)


def _rounded(numbers: FloatArray, quantiles: tuple[float, float]) -> Range:
    """The range of these quantiles, rounded outwards to about a twentieth of their distance."""
    low, high = (float(bound) for bound in np.quantile(numbers, quantiles))
    if set(np.unique(numbers[:1000]).tolist()) <= set(OF_FLAGS):
        return OF_FLAGS
    if not low < high:
        low, high = float(numbers.min()), float(numbers.max())
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    return math.floor(low / step) * step, math.ceil(high / step) * step
