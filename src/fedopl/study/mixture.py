"""Mixtures λ: how much each client counts. The server applies them as agreed before the run."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedopl.base.errors import FederationError, OptionError
from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.theory.skew import skewness as skewness  # users find it in `fedopl.mixture`

Weights = dict[str, float]
ALPHAS = (0.1, 0.25, 0.5, 0.75, 1.0)
Robust = Literal["median-of-means", "trimmed"]
Count = Literal["rows", "weight"]
# Kinds whose weights are found while a study runs.
FOUND = ("path", "minimax")


class KindOfMixture(Checked):
    """What every kind of mixture may say beside its own settings."""

    kind: str
    largest_share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="the largest share of one client; the others share what is cut",
    )
    robust: Robust | None = Field(
        default=None,
        description="lower the weight of clients whose sums disagree with most others; for "
        "csoaa-exact",
    )

    @model_validator(mode="after")
    def _can_be_cut(self) -> Self:
        for setting in ("largest_share", "robust"):
            if getattr(self, setting) is not None and self.kind in FOUND:
                message = (
                    f"the weights of '{self.kind}' are found, not agreed; leave {setting} out, or "
                    "agree on the weights"
                )
                raise PlacedError(setting, message)
        return self

    @property
    def counts_weight(self) -> bool:
        """Whether clients count by the total weight of their rows, not by their number."""
        return False


class Empirical(KindOfMixture):
    """λ = n̄: clients count by their numbers of rows, or by what these weigh together."""

    kind: Literal["empirical"] = "empirical"
    count: Count = Field(
        default="rows",
        description="count rows, whatever their weight; or weight, the sum of row weights",
    )

    @property
    def counts_weight(self) -> bool:
        """Whether the study chose to count by weight."""
        return self.count == "weight"

    def weights(self, rows: Mapping[str, float]) -> Weights:
        """The weight of each client, given its rows at enrolment, or their total weight."""
        total = sum(rows.values())
        return {name: rows[name] / total for name in sorted(rows)}


class Uniform(KindOfMixture):
    """λ_c = 1/C: every client counts the same, however many rows it has."""

    kind: Literal["uniform"] = "uniform"

    def weights(self, rows: Mapping[str, float]) -> Weights:
        """The weight of each client."""
        return {name: 1 / len(rows) for name in sorted(rows)}


class Given(KindOfMixture):
    """Given weights; they must add up to one."""

    kind: Literal["given"] = "given"
    shares: dict[str, float] = Field(description="the share of each client; shares add up to 1")

    @model_validator(mode="after")
    def _is_a_distribution(self) -> Self:
        bad = sorted(name for name, share in self.shares.items() if not 0 <= share <= 1)
        if bad:
            raise ValueError(f"mixture: expected shares from 0 to 1; not so for {', '.join(bad)}")
        total = math.fsum(self.shares.values())
        if abs(total - 1) > 1e-9:  # decimals as people write them hardly ever add up exactly
            raise ValueError(f"mixture: expected shares that add up to 1, they add up to {total:g}")
        most = max(self.shares.values(), default=0.0)
        if self.largest_share is not None and most > self.largest_share:
            message = f"a share of {most:g} is given, which is more than {self.largest_share:g}"
            raise PlacedError("largest_share", message)
        return self

    def weights(self, rows: Mapping[str, float]) -> Weights:
        """The weight of each client; a client without a share is an error."""
        if set(self.shares) != set(rows):
            raise OptionError(
                f"mixture: shares for {', '.join(sorted(self.shares))}, "
                f"but the clients are {', '.join(sorted(rows))}"
            )
        return {name: self.shares[name] for name in sorted(rows)}


class Skewed(KindOfMixture):
    """λ = n̄ + ε̄ with ε̄_c = −α·n̄_c, and α·(1 − n̄_t) for the target t, as in the experiments."""

    kind: Literal["skewed"] = "skewed"
    toward: str = Field(description="the target client")
    alpha: float = Field(
        ge=0, le=1, description="share of all other clients' weight that goes to the target client"
    )

    def weights(self, rows: Mapping[str, float]) -> Weights:
        """The weight of each client."""
        if self.toward not in rows:
            raise OptionError(
                f"mixture: skewed toward '{self.toward}', "
                f"but the clients are {', '.join(sorted(rows))}"
            )
        shares = Empirical().weights(rows)
        return {
            name: share + self.alpha * ((name == self.toward) - share)
            for name, share in shares.items()
        }


class BestSkew(KindOfMixture):
    """λ = n̄ + ε̄ with the α that is best for the target, on rows kept back for that choice."""

    kind: Literal["path"] = "path"
    toward: str = Field(description="the target client")
    alphas: tuple[float, ...] = Field(
        default=ALPHAS,
        min_length=1,
        max_length=100,
        description="the alphas to choose among; 0 is always one of them",
    )

    @model_validator(mode="after")
    def _are_shares(self) -> Self:
        if not all(0 < alpha <= 1 for alpha in self.alphas):
            raise ValueError("mixture: expected alphas above 0 and at most 1; 0 is always included")
        return self

    def weights(self, rows: Mapping[str, float]) -> Weights:
        """The start of the path; rows decide how far it goes."""
        return Skewed(toward=self.toward, alpha=0.0).weights(rows)


class Minimax(KindOfMixture):
    """The λ for the client that loses most: mirror ascent on regrets (Mohri et al. 2019)."""

    kind: Literal["minimax"] = "minimax"
    steps: int = Field(
        default=15, ge=1, le=10_000, description="largest number of steps of the ascent"
    )

    def weights(self, rows: Mapping[str, float]) -> Weights:
        """The start of the ascent; regrets decide how it continues."""
        return Empirical().weights(rows)


AnyMixture = Empirical | Uniform | Given | Skewed | BestSkew | Minimax
Mixture = Annotated[AnyMixture, Field(discriminator="kind")]


def empirical(
    *, count: Count = "rows", largest_share: float | None = None, robust: Robust | None = None
) -> Empirical:
    """λ = n̄, by rows or by their weight, limited so that no client exceeds `largest_share`."""
    return Empirical(count=count, largest_share=largest_share, robust=robust)


def uniform(*, robust: Robust | None = None) -> Uniform:
    """λ_c = 1/C."""
    return Uniform(robust=robust)


def given(shares: Mapping[str, float]) -> Given:
    """A mixture with these weights."""
    return Given(shares=dict(shares))


def skewed(toward: str, alpha: float, *, largest_share: float | None = None) -> Skewed:
    """λ = n̄ + ε̄: a share α of all other clients' weight moves to one client."""
    return Skewed(toward=toward, alpha=alpha, largest_share=largest_share)


def path(
    toward: str, alphas: Sequence[float] = BestSkew.model_fields["alphas"].default
) -> BestSkew:
    """λ = n̄ + ε̄, with the one of these α whose policy is worth most to one client."""
    return BestSkew(toward=toward, alphas=tuple(alphas))


def minimax(steps: int = Minimax.model_fields["steps"].default) -> Minimax:
    """Weights that make the largest loss of any client as small as possible."""
    return Minimax(steps=steps)


def as_mixture(spec: object) -> AnyMixture:
    """A mixture from its name or from shares by client; a mixture is returned unchanged."""
    if isinstance(spec, AnyMixture):
        return spec
    for mixture in (Empirical, Uniform, Minimax):
        if spec == mixture.model_fields["kind"].default:
            return mixture()
    if isinstance(spec, Mapping):
        return given(spec)
    raise OptionError(
        "mixture: expected 'empirical', 'uniform', 'minimax', shares by client, "
        f"fedopl.mixture.skewed(toward, alpha) or fedopl.mixture.path(toward), came {spec!r}"
    )


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What clients can count by: their rows and, if they reported it, the total weight of these."""

    rows: dict[str, int]
    weights: dict[str, float] | None = None

    def by(self, mixture: AnyMixture) -> Mapping[str, float]:
        """What this mixture counts, by client."""
        if not mixture.counts_weight:
            return self.rows
        if self.weights is None:
            raise OptionError(
                "mixture: clients were not asked what their rows weigh together; run a study that "
                "counts weight"
            )
        return self.weights


def renormalised(weights: Mapping[str, float], names: Collection[str]) -> Weights:
    """The weights of the clients in `names`, λ_c / Σ_{c ∈ S} λ_c; equal if all of them are zero."""
    total = math.fsum(weights[name] for name in sorted(names))
    if total <= 0:
        return {name: 1 / len(names) for name in sorted(names)}
    return {name: weights[name] / total for name in sorted(names)}


def agreed_weights(mixture: AnyMixture, rows: Mapping[str, float]) -> Weights:
    """The agreed mixture over clients that take part; named clients that do not are left out."""
    target = getattr(mixture, "toward", None)
    if target is not None and target not in rows:
        raise FederationError(
            f"the mixture is skewed toward '{target}', which does not take part; clients that "
            f"do: {quoted(sorted(rows))}"
        )
    named = getattr(mixture, "shares", {})
    weights = renormalised(mixture.weights({**dict.fromkeys(named, 0), **rows}), rows)
    return weights if mixture.largest_share is None else capped(weights, mixture.largest_share)


def capped(weights: Weights, largest: float) -> Weights:
    """The weights, cut at the largest share; the others get what is cut, in proportion."""
    weighing = [name for name, weight in weights.items() if weight > 0]
    if largest * len(weighing) < 1 - 1e-9:
        raise FederationError(
            f"mixture: {len(weighing)} clients take part with weight, and with a largest_share of "
            f"{largest:g} they cannot add up to 1; agree on {1 / len(weighing):.3g} or more"
        )
    cut: set[str] = set()
    while True:
        left = renormalised(weights, weights.keys() - cut) if len(cut) < len(weighing) else {}
        room = 1 - largest * len(cut)
        shared = {name: largest if name in cut else room * left.get(name, 0.0) for name in weights}
        above = {name for name in weighing if shared[name] > largest} - cut
        if not above:
            return shared
        cut |= above
