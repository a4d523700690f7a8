"""What a study promises to every row or person: differential privacy, and the ranges it needs.

`check_private` says which studies are possible with it; the two contracts say what is promised to
whoever owns rows, a sentence each.
"""

import math
import re
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.basis import LARGEST_KNOT
from fedopl.privacy.accountant import mu_for
from fedopl.privacy.subsampled import LEAST_DELTA
from fedopl.secure.neighbours import is_sound
from fedopl.study.mixture import FOUND

if TYPE_CHECKING:  # a study is checked by this as it is made
    from fedopl.study.study import Study

Range = tuple[float, float]
OF_FLAGS = (0.0, 1.0)
# The least width of a measured range, as a share of the declared range.
LEAST_FOUND = 1e-3
# With secure aggregation: with two clients, each learns the other's sums from their total.
LEAST_PARTIES, LEAST_HONEST = 3, 2
_PUBLIC_KEY = re.compile("[0-9a-f]{64}")


class PrivacyPlan(Checked):
    """How much any one row, or person, may change the chances of any result."""

    epsilon: float = Field(
        gt=0,
        le=50,
        description="the chance of any result changes by a factor of at most e^epsilon; set 50, "
        "which promises next to nothing, if masks alone are to protect",
    )
    delta: float = Field(
        default=1e-6, gt=0, lt=0.5, description="by this much a chance may exceed that factor"
    )
    unit: Literal["row", "person"] = Field(
        default="row", description="what is protected; a person is all rows of one group"
    )
    most_rows_per_person: int = Field(
        default=1,
        ge=1,
        description="of a person with more rows, only this many are used, the first ones",
    )
    aggregation: Literal["plain", "secure"] = Field(
        default="plain",
        description="secure: answers are masked, and the server can read their total alone",
    )
    noise: Literal["local", "total"] = Field(
        default="local",
        description="local: each client's answers have all the noise of the promise; total: "
        "their sum has. total needs secure aggregation, and is the default there",
    )
    colluders: int = Field(
        default=1,
        ge=0,
        description="secure: the promise holds even if this many clients tell the server all they "
        "know",
    )
    dropouts: int = Field(
        default=0,
        ge=0,
        description="secure: this many clients may be lacking in a sum, which is then over the "
        "others; each sum takes two trips. 0: all clients must answer",
    )
    values_apart: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        description="secure: this share of the budget of held-out rows is spent on each client's "
        "own values. The server reads them, with all the noise of the promise. 0: it reads no "
        "client's own values",
    )
    keys: dict[str, str] = Field(
        default_factory=dict,
        description="secure: by client, the public key that `fedopl keys` prints",
    )
    steps: int = Field(
        default=4,
        ge=1,
        le=20,
        description="number of steps of learning after the first sums; each is an exchange",
    )
    sampled: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of rows in each step of csoaa-sgd, drawn at random",
    )
    scales: Literal["declared", "measured"] = Field(
        default="declared",
        description="measured: a tenth of the budget is spent first, in one more trip, to find "
        "where numbers lie within their ranges. The ranges may then be wide",
    )
    outcome: Range = Field(
        description="where outcomes lie; outcomes beyond the range are moved to its ends"
    )
    ranges: dict[str, Range] = Field(
        default_factory=dict,
        description="for each number, where most values lie; rows far beyond count for less",
    )
    declared_ranges: dict[str, Range] | None = Field(
        default=None,
        description="the agreed ranges, if others were measured since; a run fills it in",
    )

    @property
    def is_secure(self) -> bool:
        """Whether the server reads only totals."""
        return self.aggregation == "secure"

    @property
    def measures_first(self) -> bool:
        """Whether ranges are found from noisy sums before anything else."""
        return self.scales == "measured"

    @property
    def is_measured(self) -> bool:
        """Whether the units of numbers are known."""
        return not self.measures_first or self.declared_ranges is not None

    @property
    def measured(self) -> tuple[str, ...]:
        """The numbers whose ranges are found; a number from 0 to 1 counts as a flag."""
        declared = self.declared_ranges or self.ranges
        return tuple(name for name, own in sorted(declared.items()) if own != OF_FLAGS)

    @property
    def n_sharing_noise(self) -> int:
        """The number of clients whose noise together makes up the promised noise."""
        lacking = self.colluders + self.dropouts
        return len(self.keys) - lacking if self.noise == "total" else 1

    @property
    def noise_of_total(self) -> float:
        """The deviation of noise in a total of all clients, relative to that of a release."""
        return self.noise_of(len(self.keys))

    def noise_of(self, n_clients: int) -> float:
        """The deviation of noise in a total over `n_clients`, relative to that of a release."""
        return math.sqrt(n_clients / self.n_sharing_noise)

    @property
    def mu_alone(self) -> float:
        """What one client's own noise promises, if all others tell the server all they know."""
        return self.mu * math.sqrt(self.n_sharing_noise)

    @model_validator(mode="after")
    def _has_keys_and_shares_noise(self) -> Self:
        # If no answer is seen alone, the full noise in each would be more than is promised.
        if self.is_secure and "noise" not in self.model_fields_set:
            self.__dict__["noise"] = "total"
        if not self.is_secure:
            for name in ("colluders", "dropouts", "values_apart", "keys"):
                if getattr(self, name) != type(self).model_fields[name].get_default(
                    call_default_factory=True
                ):
                    raise PlacedError(name, 'only with aggregation = "secure"')
            if self.noise == "total":
                message = "clients can share the noise only if nobody sees a single answer: set "
                raise PlacedError("noise", message + 'aggregation = "secure"')
            return self
        for name, key in self.keys.items():
            if not _PUBLIC_KEY.fullmatch(key):
                message = f"expected the 64 digits that `fedopl keys` prints, came '{key}'"
                raise PlacedError(f"keys.{name}", message, ("keys", name))
        if self.keys and len(self.keys) < LEAST_PARTIES:
            message = (
                f"{quoted(sorted(self.keys))}: of fewer than {LEAST_PARTIES} clients, each would "
            )
            raise PlacedError("keys", message + "learn the other's sums from the total")
        if len(set(self.keys.values())) < len(self.keys):
            raise PlacedError("keys", "two clients have the same key; each needs its own secret")
        if self.keys and len(self.keys) - self.colluders < LEAST_HONEST:
            message = f"of {len(self.keys)} clients, at most {len(self.keys) - LEAST_HONEST} may "
            raise PlacedError(
                "colluders",
                message + "collude: otherwise a single client would have no other to hide among",
            )
        if (
            self.keys
            and self.dropouts
            and not is_sound(len(self.keys), self.colluders, self.dropouts)
        ):
            most = (len(self.keys) - self.colluders - 1) // 2
            message = (
                f"of {len(self.keys)} clients of which {self.colluders} may collude, at most "
                f"{most} may be lacking. Of the others, more than half must be honest and "
                "answer, or the server could tell different things to two halves"
            )
            raise PlacedError("dropouts", message)
        return self

    @model_validator(mode="after")
    def _has_ranges(self) -> Self:
        named = {"outcome": self.outcome, **{f"ranges.{k}": v for k, v in self.ranges.items()}}
        for name, (low, high) in named.items():
            if not low < high:
                raise PlacedError(name, f"expected [low, high], came [{low:g}, {high:g}]")
            if max(-low, high) > LARGEST_KNOT:
                message = f"expected numbers of at most {LARGEST_KNOT:g}"
                raise PlacedError(name, f"{message}, came [{low:g}, {high:g}]")
        if self.declared_ranges is not None and (
            not self.measures_first or set(self.declared_ranges) != set(self.ranges)
        ):
            message = "a run fills it in, where scales are measured; leave it out"
            raise PlacedError("declared_ranges", message)
        for name, (low, high) in (self.declared_ranges or {}).items():
            found, width = self.ranges[name], high - low
            share = (found[1] - found[0]) / width
            # Rounding may make it slightly more or less.
            is_near = low - 0.6 * width <= found[0] and found[1] <= high + 0.6 * width
            if not (is_near and LEAST_FOUND / 2 <= share <= 1.1):
                message = f"[{found[0]:g}, {found[1]:g}] does not follow from [{low:g}, {high:g}]"
                raise PlacedError(f"ranges.{name}", message)
        if self.measures_first and not self.measured:
            message = "there is no number whose range could be measured: flags lie at their ends"
            raise PlacedError("scales", message)
        if self.most_rows_per_person > 1 and self.unit == "row":
            message = 'rows of a person are counted with unit = "person"'
            raise PlacedError("most_rows_per_person", message)
        return self

    def check_rows(self, client: str, n_rows: int) -> None:
        """Refuse a promise that would allow to publish somebody's row unchanged."""
        if self.delta * n_rows >= 1:
            raise OptionError(
                f"privacy.delta: {self.delta:g} is no promise for {client}, which has {n_rows:,} "
                "rows: with that probability a row could be revealed as it is. Take less than "
                f"{1 / n_rows:.1g}"
            )

    @cached_property
    def mu(self) -> float:
        """The promise as Gaussian differential privacy, for training and for evaluation alike.

        No row is in both, so the study as a whole discloses no more.
        """
        return mu_for(self.epsilon, self.delta)


MOST_GRADIENTS = 1000  # rounds of csoaa-sgd
_ONE_STEP = (
    "with differential privacy, a round of csoaa-sgd is one step of all clients over the share of "
    "rows that privacy.sampled says"
)
# Tables of every two columns suffice for trees of two questions, one after the other.
MOST_PRIVATE_DEPTH = 2


def check_private(study: "Study", plan: PrivacyPlan) -> None:
    """Raise a PlacedError unless the study is possible with differential privacy."""
    encoding = study.encoding
    numbers = set(encoding.numeric if encoding else study.features)
    lacking = [name for name in study.features if name in numbers and name not in plan.ranges]
    unknown = [name for name in plan.ranges if name not in study.features]
    possible = {
        "policy": study.policy.kind in ("linear", "tree", "finite")
        and (study.linear.can_bend or study.linear.by_gradients),
        "tree.thresholds": study.tree.thresholds == "grid",
        "tree.depth": study.tree.depth <= MOST_PRIVATE_DEPTH,
        "tree.minimum_leaf": study.tree.minimum_leaf == 1,
        "policy.never": study.permissions is None or study.policy.kind != "tree",
        "basis.screened_pairs": study.basis is None or not study.basis.screened_pairs,
        "basis.screened_thresholds": study.basis is None or not study.basis.screened_thresholds,
        "basis.waves": study.basis is None or not study.basis.waves,
        "mixture": study.mixture.kind not in FOUND and not study.mixture.robust,
        "mixture.count": not study.mixture.counts_weight,
        "joining.diagnose": not study.joining.diagnose,
        "evaluation.splits": study.evaluation.splits == 1,
        "nuisances.propensity": study.nuisances.propensity in ("auto", "known"),
        "rows.weight": not (study.table and study.table.weight),
        "rows.group": plan.unit == "row" or not study.table or study.table.group is not None,
        "declared.overlap": study.declared.overlap is not None,
    }
    _check_gradients(study, plan)
    if plan.is_secure:
        _check_secure(study, plan)
    for place, is_possible in possible.items():
        if not is_possible:
            within = ("policy",) if place.startswith("tree.") else ()
            raise PlacedError(place, _PRIVATELY[place], (*within, *place.split(".")))
    if lacking:
        raise PlacedError(
            "privacy.ranges", f"no range of {quoted(lacking)}; say where most values lie"
        )
    if unknown:
        raise PlacedError("privacy.ranges", f"{quoted(unknown)} is no feature")


def _check_secure(study: "Study", plan: PrivacyPlan) -> None:
    """Raise a PlacedError unless totals are enough for the study, and it names their clients."""
    if study.policy.kind == "linear" and study.linear.by_gradients:
        message = "csoaa-sgd takes many steps, each with its own masks; use csoaa-exact"
        raise PlacedError("privacy.aggregation", f"with secure aggregation, {message}")
    if plan.values_apart and not study.evaluation.share:
        message = (
            "no rows are held out, so no client has values to report apart; hold some out: share"
        )
        raise PlacedError("privacy.values_apart", f"{message} = 0.25 under [evaluation]")
    if not plan.keys:
        message = (
            "secure aggregation needs every client's public key, or the server could "
            "impersonate clients; `fedopl keys clients` prints the lines to add under "
            "[privacy.keys]"
        )
        raise PlacedError("privacy.keys", message)


def _check_gradients(study: "Study", plan: PrivacyPlan) -> None:
    """Raise a PlacedError unless steps are set by the right keys, and each is of the right kind.

    A step of csoaa-sgd with noise is one gradient over sampled rows of every client.
    """
    if study.policy.kind != "linear" or not study.linear.by_gradients:
        if plan.sampled < 1:
            raise PlacedError("privacy.sampled", "only csoaa-sgd can take steps on sampled rows")
        return
    usual, training = type(study.linear.training)(), study.linear.training
    for name in ("local_steps", "batch_size", "clients_per_round", "proximal", "average"):
        if getattr(training, name) != getattr(usual, name):
            raise PlacedError(name, _ONE_STEP, ("policy", "training", name))
    if plan.steps != PrivacyPlan.model_fields["steps"].default:
        raise PlacedError("privacy.steps", "csoaa-sgd takes one for each of its rounds")
    if training.rounds > MOST_GRADIENTS:
        message = f"with differential privacy at most {MOST_GRADIENTS:,}: noise is for all of them"
        raise PlacedError("rounds", message, ("policy", "training", "rounds"))
    if plan.sampled < 1 and plan.delta < LEAST_DELTA:
        message = f"with sampled rows at least {LEAST_DELTA:g}, to which losses can be added up"
        raise PlacedError("privacy.delta", message)


# What each setting must be with differential privacy.
_PRIVATELY = {
    "policy": "with differential privacy, policies are linear, on shared features by csoaa-exact "
    "or csoaa-sgd, trees, or the best of candidates",
    "tree.thresholds": "observed thresholds are values of rows; with differential privacy, "
    "use the grid",
    "tree.depth": "with differential privacy, a tree asks one question or two, one after the "
    "other. Each further level would need its own tables, with their noise; depth = "
    f"{MOST_PRIVATE_DEPTH} at most",
    "tree.minimum_leaf": "with differential privacy, the rows of a leaf are not counted; leave "
    "it out, or give every question a price: split_cost",
    "policy.never": "with differential privacy, only linear policies and candidates obey rules "
    "on who may get what; a tree's tables would need noise for the replacing action, too",
    "basis.screened_pairs": "with differential privacy, pairs are named, not screened",
    "basis.screened_thresholds": "with differential privacy, thresholds are not screened",
    "basis.waves": "with differential privacy there are no waves: there would be too many terms "
    "for the noise",
    "mixture": "with differential privacy, weights of clients are agreed, not found",
    "mixture.count": "with differential privacy, clients count by rows",
    "joining.diagnose": "what joining is worth takes many more answers than the noise allows for",
    "evaluation.splits": "every split would be a further study, with its own noise",
    "nuisances.propensity": "with differential privacy, propensities are known or computed from "
    "noisy sums: auto or known",
    "rows.weight": "with differential privacy, all rows weigh the same",
    "rows.group": 'unit = "person", so say which column has the person',
    "declared.overlap": "with differential privacy, say how small propensities may be, as in "
    "overlap = 0.05",
}


EXACT = (
    "Contract exact: only the sums that `fedopl preview` lists leave, exactly, to a server that "
    "keeps to the study"
)
MASKED = "; masks hide the numbers of single clients"


def contract_of(study: "Study") -> str:
    """The contract of this study, in one sentence."""
    plan = study.privacy
    if plan is None:
        return f"{EXACT}."
    masks = MASKED if plan.is_secure else ""
    return (
        "Contract private: every number that leaves is a sum of bounded parts of rows with noise, "
        f"charged to a lifetime account of the rows, here with ε = {plan.epsilon:g}{masks}."
    )
