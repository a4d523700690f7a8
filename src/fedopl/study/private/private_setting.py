"""What follows from a private study's settings: bounds on rows, releases, noise, and ranges."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.privacy.accountant import mu_of_several, noise_for, split_mu
from fedopl.privacy.score_axes import longest_turned, noise_of_scores, score_axes
from fedopl.privacy.subsampled import SLIP, least_noise, mu_of_sampled
from fedopl.solvers.private_regression import FirstNoise
from fedopl.study.private.privacy_plan import LEAST_FOUND, OF_FLAGS, PrivacyPlan, Range
from fedopl.study.private.private_units import Scales, TreeTables, middles_and_units, scales_of
from fedopl.study.study import Study

# Shares of μ² in training: the first sums; all steps together get the rest.
FIRST_SHARE = 0.4
# Shares of μ² for a tree: the first sums, the coarse tables, and the bins near thresholds.
_OF_TREES = (0.2, 0.5, 0.3)
# Share of first sums for csoaa-sgd, which uses them only for propensities and the length of steps.
FIRST_SHARE_OF_GRADIENTS = 0.1
# Shares of μ² in evaluation: values; what their variance is found from gets the rest.
VALUE_SHARE = 0.8
# Share of μ² in training, with secure aggregation: each client's own sums for propensities.
OWN_SHARE = 0.1
OWN_SUMS = "Kept at the client, for propensities: squares of features"
# Valued policies besides what was done and the client's own: the learned one and one arm.
N_VALUED = 2
# Rows times μ per term; with fewer, learning a linear policy on a basis loses much, as
# `experiments/private_basis.py` shows.
_ROWS_A_TERM = 20
# Share of μ² in training for measuring ranges first, and the part of that for the means of numbers.
# The rest is for their spread, since noise hides squares of small numbers sooner.
MEASURED_SHARE, _OF_MEANS = 0.1, 1 / 3
# Numbers are clipped at this distance, in units of the declared range: its ends.
FARTHEST_MEASURED = 2.0


class Bounds:
    """The largest part of a row in each release, in units of the study."""

    def __init__(self, n_terms: int, n_actions: int) -> None:
        size = math.sqrt(n_terms + 1)
        self.radius = math.sqrt(n_terms)  # of features; rows further out count for less
        self.square = n_terms + 1.0  # of features and an intercept
        self.product = 1.2 * size  # of features and an intercept, times the outcome
        self.step = 0.4 * n_actions * size  # the same, times a residual over its propensity
        # For scores minus their mean over actions, and for the difference of two of them.
        self.contrast = 0.6 * n_actions


def most_terms(plan: PrivacyPlan, rows: Sequence[int]) -> float:
    """How many terms a basis may have before noise hides most of what these clients' rows show.

    The part of a row in sums grows about in proportion to the number of terms, and so does noise.
    """
    return plan.mu * sum(rows) / math.sqrt(len(rows)) / _ROWS_A_TERM


class Releasable(NamedTuple):
    """A release before its noise is known."""

    what: str
    moves: float  # what one row, or person, moves it by, in units of the study
    share: float  # of μ², all times together
    times: int = 1
    of_one: bool = False  # under masks: of each client by itself, with all noise of its own


def _shrunk(parts: Mapping[str, Releasable], share: float) -> dict[str, Releasable]:
    """The same releases with this share of what each could spend."""
    return {name: part._replace(share=share * part.share) for name, part in parts.items()}


@dataclass(frozen=True)
class Release:
    """A release with noise."""

    part: Releasable
    # For all times together, as Gaussian differential privacy; with sampling, as if all rows were
    # used.
    mu: float
    of_held_out: bool  # of rows that nothing is learned from, or of all others

    @property
    def deviation(self) -> float:
        """The standard deviation of its noise, in units of the study."""
        return self.deviation_for(self.part.moves)

    def deviation_for(self, moves: float) -> float:
        """The standard deviation of its noise if a row moves it by `moves`."""
        return noise_for(moves, self.mu / math.sqrt(self.part.times))


class PrivateSetting:
    """Units, bounds and releases of a private study."""

    def __init__(self, study: Study) -> None:
        if study.privacy is None:
            raise TypeError("the study has no differential privacy")
        self._study = study
        self.plan: PrivacyPlan = study.privacy
        self.bounds = Bounds(study.n_terms, study.n_actions)

    @property
    def families(self) -> tuple[int, ...]:
        """The number of terms of each family to choose between, the simplest first."""
        terms = self._study.terms
        if terms is None:
            return (self._study.n_features,)
        return tuple(terms.sizes[family] for family in terms.families)

    @cached_property
    def scales(self) -> Scales:
        """The origins and units of features and outcomes."""
        return scales_of(self._study, self.plan)

    @property
    def longest_scores(self) -> float:
        """The largest length of a row's rotated scores of all candidates of this study together."""
        return longest_turned(self._study.declared.overlap or 1.0, own=not self.plan.is_secure)

    @property
    def score_axes(self) -> FloatArray:  # (n_candidates, n_candidates)
        """The rotation of scores; with secure aggregation clients have no local policies."""
        return score_axes(self._study.declared.overlap or 1.0, own=not self.plan.is_secure)

    @property
    def noise_of_scores(self) -> FloatArray:  # (n_candidates, n_candidates)
        """The covariance of noise in scores, if rotated scores have noise of variance 1."""
        return noise_of_scores(self._study.declared.overlap or 1.0, own=not self.plan.is_secure)

    @cached_property
    def releases(self) -> Mapping[str, Release]:
        """All noisy releases, by name.

        No row is used for both learning and evaluation, so each of the two may spend the whole
        promise.
        """
        valued = self._valued() if self._study.evaluation.share else {}
        learned = self._with_own(self._with_moments(self._learned()))
        return self._released(learned) | self._released(valued, of_held_out=True)

    def _with_own(self, parts: dict[str, Releasable]) -> dict[str, Releasable]:
        """The parts, plus the sums for propensities if no sums of a single client leave."""
        if not self.plan.is_secure or self._study.nuisances.propensity == "known":
            return parts
        moves = self.plan.most_rows_per_person * Bounds(self._study.n_features, 1).square
        own = Releasable(OWN_SUMS, moves, OWN_SHARE, of_one=True)
        return {"own": own} | _shrunk(parts, 1 - OWN_SHARE)

    @property
    def moments_move(self) -> float:
        """How far a row moves sums of numbers, and sums of squares: each ranges from −2 to 2."""
        return FARTHEST_MEASURED * math.sqrt(len(self.plan.measured))

    def _with_moments(self, parts: dict[str, Releasable]) -> dict[str, Releasable]:
        """The parts, plus the sums that ranges are found from, if the study finds ranges."""
        if not self.plan.measures_first:
            return parts
        moves = self.plan.most_rows_per_person * self.moments_move
        means, spreads = _OF_MEANS * MEASURED_SHARE, (1 - _OF_MEANS) * MEASURED_SHARE
        first = {
            "means": Releasable("Before all else: sums of numbers", moves, means),
            "spreads": Releasable("Before all else: squares of numbers", moves, spreads),
        }
        return first | _shrunk(parts, 1 - MEASURED_SHARE)

    @property
    def by_gradients(self) -> bool:
        """Whether steps are plain gradients, over rows that may be sampled."""
        return self._study.linear.by_gradients

    @property
    def n_steps(self) -> int:
        """The number of learning steps."""
        return self._study.linear.training.rounds if self.by_gradients else self.plan.steps

    @property
    def lifetime(self) -> tuple[float, float]:
        """What the study adds to a row's total disclosure: μ, and an exception probability.

        Except with that probability, sampled steps and all other releases disclose no more than
        μ-GDP does.
        """
        if self.plan.sampled == 1:
            return self.plan.mu, 0.0
        learned = [one for one in self.releases.values() if not one.of_held_out]
        step = self.releases["step"]
        first = mu_of_several(one.mu for one in learned if one is not step)
        told = (self.plan.sampled, step.deviation / step.part.moves, step.part.times)
        return max(mu_of_sampled(told, first), self.plan.mu), SLIP

    @cached_property
    def tables(self) -> TreeTables:
        """The tables that are released for a tree."""
        return TreeTables(self._study, self.plan.ranges)

    def _learned(self) -> dict[str, Releasable]:
        if self._study.policy.on_grid:
            return self._learned_by_tree()
        if self._study.policy.compares_candidates:
            return self._learned_by_choice()
        first = FIRST_SHARE_OF_GRADIENTS if self.by_gradients else FIRST_SHARE
        moves, sampled = self.plan.most_rows_per_person * self.bounds.step, self.plan.sampled
        named = "A step of learning" + (f", of {sampled:.3g} of rows" if sampled < 1 else "")
        step = Releasable(named, moves, 1 - first, self.n_steps)
        return {**self._first(first), "step": step}

    @property
    def n_candidates(self) -> int:
        """The number of policies to choose among: constant arms, and those that the study names."""
        return self._study.n_actions + len(self._study.candidates)

    @property
    def scores_move(self) -> float:
        """How far a row moves all candidates' scores, if its contrasts are no longer than 1.

        K numbers that differ by w at most have a length of at most w·√K/2 about their mean; and two
        contrasts differ by √2 at most.
        """
        return math.sqrt(self.n_candidates / 2)

    def _learned_by_choice(self) -> dict[str, Releasable]:
        first = _OF_TREES[0]
        longest = self.plan.most_rows_per_person * self.bounds.contrast * self.scores_move
        scores = Releasable("Sums of candidates' scores", longest, 1 - first)
        return {**self._first(first), "scores": scores}

    def _learned_by_tree(self) -> dict[str, Releasable]:
        first, coarse, near = _OF_TREES
        tables = self.tables
        largest = self.plan.most_rows_per_person * self.bounds.contrast
        if not tables.may_refine:
            coarse, near = coarse + near, 0.0
        cells = Releasable("Sums over the cells of a grid", largest * tables.cells_move, coarse)
        gains = Releasable("Sums close to thresholds", largest * tables.gains_move, near)
        return {**self._first(first), "cells": cells} | ({"gains": gains} if near else {})

    def _first(self, share: float) -> dict[str, Releasable]:
        rows, bounds = self.plan.most_rows_per_person, self.bounds
        # Shared so that noise is least if coefficients are about one in size. Squares then add
        # noise to products: half of theirs.
        halved = bounds.square / math.sqrt(2)
        for_squares = share * halved / (halved + bounds.product)
        return {
            "squares": Releasable(
                "First sums: squares of features", rows * bounds.square, for_squares
            ),
            "products": Releasable(
                "First sums: products of features and outcomes",
                rows * bounds.product,
                share - for_squares,
            ),
        }

    def _valued(self) -> dict[str, Releasable]:
        # A person's scores are added up before they are squared.
        longest = self.plan.most_rows_per_person * self.longest_scores
        apart = self.plan.values_apart
        parts = {
            "values": Releasable("Sums of values", longest, VALUE_SHARE),
            "value squares": Releasable("Sums of squares of values", longest**2, 1 - VALUE_SHARE),
        }
        if not apart:
            return parts
        told = {
            f"{name} apart": part._replace(
                what=f"Of each client apart: {part.what.lower()}",
                share=apart * part.share,
                of_one=True,
            )
            for name, part in parts.items()
        }
        return _shrunk(parts, 1 - apart) | told

    def _released(
        self, parts: Mapping[str, Releasable], *, of_held_out: bool = False
    ) -> dict[str, Release]:
        if not parts:
            return {}
        each = split_mu(self.plan.mu, [part.share for part in parts.values()])
        named = zip(parts.items(), each, strict=True)
        found = {name: Release(part, mu, of_held_out) for (name, part), mu in named}
        if self.plan.sampled < 1 and not of_held_out:
            found["step"] = self._sampled(found)
        return found

    def _sampled(self, found: Mapping[str, Release]) -> Release:
        """Steps with the least noise that keeps the promise, given the first sums."""
        step, plan = found["step"], self.plan
        beside = mu_of_several(one.mu for name, one in found.items() if name != "step")
        steps = (plan.sampled, step.part.times)
        noise = least_noise((plan.epsilon, plan.delta), steps, beside)
        return replace(step, mu=math.sqrt(step.part.times) / noise)

    def deviation(self, name: str) -> float:
        """The standard deviation of noise in a release."""
        return self.releases[name].deviation

    def deviation_read(self, name: str) -> float:
        """The deviation as read: under masks that of the total, unless clients are read alone."""
        found = self.releases[name]
        is_total = self.plan.is_secure and not found.part.of_one
        return found.deviation * (self.plan.noise_of_total if is_total else 1.0)

    @property
    def first_noise(self) -> FirstNoise:
        """The noise of the first sums."""
        return FirstNoise(self.deviation("squares"), self.deviation("products"))

    def step_deviation(self, n_terms: int) -> float:
        """The noise of a step on this number of first terms."""
        bound = Bounds(n_terms, self._study.n_actions).step
        return self.releases["step"].deviation_for(self.plan.most_rows_per_person * bound)


# --- ranges that are found before anything else, from noisy sums of numbers and of their squares --

# The ranges found are public. Any ranges keep the promise, since rows are bounded in units,
# whatever the units are. The study then continues as the same study with these ranges.

# Squares are measured from this, so that they move a sum no further than numbers do.
MIDDLE_SQUARE = FARTHEST_MEASURED**2 / 2
# Digits of ranges that are found; more digits would be hard to read and add nothing.
_DIGITS = 4
# A variance must be at least this many deviations of the noise in mean squares.
_SURELY = 2.0


def with_ranges(study: Study, ranges: Mapping[str, Range]) -> Study:
    """The study with these ranges; a ValueError if it cannot have them."""
    plan = PrivateSetting(study).plan
    own = {"ranges": {**plan.ranges, **ranges}, "declared_ranges": plan.ranges}
    found = PrivacyPlan.model_validate(plan.model_dump() | own)
    return study.model_copy(update={"privacy": found})


def found_ranges(
    study: Study, sums: FloatArray, squares: FloatArray, n_rows: int, noise: float
) -> dict[str, Range]:
    """Two standard deviations to either side of the mean, by name, as far as noise allows.

    Args:
        study: before it continues with the ranges found.
        sums: by number, over all clients, in units of the declared ranges.
        squares: sums of squares likewise, less `MIDDLE_SQUARE` for each row.
        n_rows: the number of rows in the sums.
        noise: in the total, in deviations of the release.

    """
    setting = PrivateSetting(study)
    names = setting.plan.measured
    middle, unit = middles_and_units(names, setting.plan.ranges)
    most = FARTHEST_MEASURED
    means = np.clip(sums / n_rows, -most, most)
    variances = squares / n_rows + MIDDLE_SQUARE - means**2
    # At least as wide as noise can resolve, and at most as wide as declared.
    sure = _SURELY * noise * setting.deviation("spreads") / n_rows
    spread = np.sqrt(np.clip(variances, min(max(sure, LEAST_FOUND**2), 1.0), 1.0))
    ends = [middle + unit * (means + side * most * spread) for side in (-1, 1)]
    return {name: _readable((low, high)) for name, low, high in zip(names, *ends, strict=True)}


def _readable(ends: Sequence[float]) -> Range:
    """A range with few digits relative to its width, which is not mistaken for that of a flag."""
    low, high = float(ends[0]), float(ends[1])
    digits = _DIGITS - 1 - int(np.floor(np.log10(high - low)))
    found = round(low, digits), round(high, digits)
    return found if found != OF_FLAGS else (found[0], found[1] + 10.0**-digits)
