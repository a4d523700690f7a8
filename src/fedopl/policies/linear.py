"""Linear policies: one score for each action; the largest score decides."""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import OptionError, PolicyError
from fedopl.base.labels import quoted
from fedopl.base.schema import Encoding
from fedopl.base.tables import html_table
from fedopl.policies.allowed.permissions import Permissions, largest_allowed
from fedopl.policies.export.target import Target, Term
from fedopl.policies.policy import Domain, Policy, checked_contexts
from fedopl.policies.terms import Terms

# The intercept of an action that no client has a score for: it is never the largest.
NEVER = -1e300
# Terms of more contexts at once would not fit in a core's cache.
ROWS_OF_TERMS = 8192


@dataclass(frozen=True, eq=False, repr=False)
class LinearPolicy(Policy):
    """π(x) = argmax_a φ(x, a)ᵀθ_a; ties go to the lowest code.

    φ is x, or the terms of a basis. Per-action blocks φ(x, a) = x_a have coefficients of zero
    outside the action's block.
    """

    kind: ClassVar[str] = "linear"
    message_field: ClassVar[str] = "linear"
    message_axes: ClassVar[tuple[str, ...]] = ("linear policies", "actions", "linear numbers")
    explained_by: ClassVar[str] = "weights"
    reads_columns: ClassVar[bool] = False

    parameters: FloatArray  # (n_actions, n_terms + 1), the intercept last
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    encoding: Encoding | None = None  # how a table becomes features, where the study reads tables
    terms: Terms | None = None  # what it is linear in, if not the features themselves
    permissions: Permissions | None = None

    @property
    def coefficients(self) -> FloatArray:  # (n_actions, n_terms)
        """How much each term adds to each score."""
        return self.parameters[:, :-1]

    @property
    def intercepts(self) -> FloatArray:  # (n_actions,)
        """Each score if all terms are zero."""
        return self.parameters[:, -1]

    def linear(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_scores)
        """The linear scores themselves."""
        rows = checked_contexts(contexts, self.feature_names)
        n_used = self.n_used
        if not n_used:  # a constant arm: nothing to multiply
            return np.tile(self.intercepts, (len(rows), 1))
        if self.terms is None:
            return rows @ self.coefficients.T + self.intercepts
        found = np.empty((len(rows), len(self.parameters)))
        for start in range(0, len(rows), ROWS_OF_TERMS):
            some = slice(start, start + ROWS_OF_TERMS)
            used = self.terms.of(rows[some], n_used)
            np.matmul(used, self.coefficients[:, :n_used].T, out=found[some])
        return found + self.intercepts

    def on_terms_of_all_rows(self) -> Self:
        """The same policy without the terms that were found only without some fold.

        It has no coefficients for these.
        """
        terms = self.terms
        if terms is None or terms.basis.found_by_fold is None:
            return self
        kept = [*terms.usable(terms.n_terms), terms.n_terms]
        own = Terms(terms.basis.of_screening(-1), terms.features)
        return replace(self, parameters=self.parameters[:, kept], terms=own)

    @property
    def n_used(self) -> int:
        """The number of first terms that the policy needs."""
        used = np.flatnonzero(self.coefficients.any(axis=0))
        return int(used[-1]) + 1 if len(used) else 0

    @property
    def term_names(self) -> tuple[str, ...]:
        """The name of each coefficient's term."""
        return self.feature_names if self.terms is None else self.terms.names

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The score of each action; the largest decides."""
        return self.linear(contexts)

    def preferred(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action with the largest score."""
        return np.asarray(np.argmax(self.scores(contexts), axis=1))

    def best_allowed(self, contexts: FloatArray, forbidden: BoolArray) -> IntArray:  # (n_rows,)
        """The allowed action with the largest score."""
        return largest_allowed(self.scores(contexts), forbidden)

    def worth(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The scores of actions that clients have scores for; NaN for others."""
        if not self.n_used:
            raise PolicyError(
                "the policy gives everybody the same scores, so nobody gains more than others"
            )
        return known_scores(self.scores(contexts))

    @classmethod
    def scores_of(cls, action_names: tuple[str, ...]) -> list[str]:  # (n_scores,)
        """The action that each linear score belongs to."""
        return list(action_names)

    @property
    def score_names(self) -> list[str]:  # (n_scores,)
        """The action or pair that each linear score belongs to."""
        return self.scores_of(self.action_names)

    def written_in(self, target: Target[Term]) -> Term:
        """The action with the largest score, in another language."""
        return target.largest(dict(enumerate(self.linear_in(target))))

    def linear_in(self, target: Target[Term]) -> list[Term]:  # (n_scores,)
        """The linear scores themselves, in another language."""
        return target.weighted_sums(self.score_names, *self.columns_in(target, self.parameters))

    def columns_in(
        self, target: Target[Term], parameters: FloatArray
    ) -> tuple[list[tuple[str, Term]], FloatArray]:
        """The columns that scores add up in another language, and the parameters for them."""
        if self.terms is None:
            columns = list(zip(self.feature_names, target.features(), strict=True))
        else:
            columns = self.terms.written_in(target, self.n_used)
        return columns, parameters[:, [*range(len(columns)), -1]]

    # --- what explains it ----------------------------------------------------------------------

    @property
    def never_chosen(self) -> tuple[str, ...]:
        """The actions that no client has a score for."""
        return tuple(self._names_where(self.intercepts <= NEVER / 10))

    def contrasts(self) -> tuple[list[tuple[str, ...]], FloatArray]:  # (n_contrasts, n_terms)
        """The comparisons, of an action with all others or of a pair, and their coefficients."""
        return self.contrasted(self.coefficients)

    def contrasted(
        self, by_score: FloatArray
    ) -> tuple[list[tuple[str, ...]], FloatArray]:  # (n_contrasts, …)
        """The comparisons, and their contrasts of a quantity that is given by score."""
        if self.has_blocks:
            return [(name,) for name in self.action_names], by_score
        usable = self.intercepts > NEVER / 10
        names = self._names_where(usable)
        if len(names) == 2:
            first, second = by_score[usable]
            return [tuple(names)], (first - second)[None, :]
        return [(name,) for name in names], by_score[usable] - by_score[usable].mean(axis=0)

    @property
    def bends(self) -> bool:
        """Whether the policy uses terms of a basis other than the features themselves."""
        return self.terms is not None and self.n_used > len(self.feature_names)

    @property
    def has_blocks(self) -> bool:
        """Whether each feature belongs to one action only: φ(x, a) = x_a."""
        weights = self.coefficients
        n_actions, n_features = weights.shape
        if self.terms or n_features % n_actions or not weights.any() or self.intercepts.any():
            return False
        own = np.arange(n_features) // (n_features // n_actions)
        return not weights[own[None, :] != np.arange(n_actions)[:, None]].any()

    def _names_where(self, chosen: BoolArray) -> list[str]:
        return [name for name, is_one in zip(self.action_names, chosen, strict=True) if is_one]

    # --- numbers and files ---------------------------------------------------------------------

    def numbers(self) -> FloatArray:  # (n_scores, n_terms + 1)
        """The policy as a message carries it."""
        return self.parameters

    def numbers_for(self, domain: Domain) -> FloatArray:  # (n_scores, n_terms + 1)
        """The numbers in a domain with further terms, whose coefficients are zero."""
        shape = self.numbers_shape(domain)
        if shape == self.parameters.shape:
            return self.parameters
        wide, last = np.zeros(shape), self.n_columns(domain) - 1
        wide[:, : self.n_used], wide[:, last] = self.coefficients[:, : self.n_used], self.intercepts
        return wide

    @classmethod
    def numbers_shape(cls, domain: Domain) -> tuple[int, int]:
        """The shape of the numbers that a message has for one policy."""
        width = cls.n_columns(domain)
        # If a study is cautious, every policy's numbers have room for doubts.
        doubts = width * (width + 1) // 2 if domain.is_cautious and cls._may_bend() else 0
        return len(cls.scores_of(domain.actions)), width + doubts

    @classmethod
    def n_columns(cls, domain: Domain) -> int:
        """The number of parameters of a score in this domain, with the intercept."""
        terms = cls._terms_in(domain)
        return (len(domain.features) if terms is None else terms.n_terms) + 1

    @classmethod
    def _may_bend(cls) -> bool:
        """Whether policies of this kind can be linear in terms of a basis."""
        return "linear numbers" in cls.message_axes

    @classmethod
    def _terms_in(cls, domain: Domain) -> Terms | None:
        """The terms in which policies of this kind are linear, if not the features themselves."""
        return domain.terms if cls._may_bend() else None

    @classmethod
    def from_numbers(cls, numbers: FloatArray, domain: Domain) -> Self:
        """The policy that a message carried."""
        return cls(
            numbers,
            domain.actions,
            domain.features,
            domain.encoding,
            cls._terms_in(domain),
            domain.permissions,
        )

    def content(self) -> dict[str, Any]:
        """The saved content, besides actions and features."""
        scores = [
            {"of": name, "intercept": float(row[-1]), "coefficients": row[:-1].tolist()}
            for name, row in zip(self.score_names, self.parameters, strict=True)
        ]
        basis = {} if self.terms is None else {"basis": self.terms.basis.model_dump(mode="json")}
        return {"scores": scores, **basis}

    @classmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The saved policy; a ValueError, KeyError or TypeError if the content is invalid."""
        rows = [[*score["coefficients"], score["intercept"]] for score in content["scores"]]
        parameters = np.array(rows, np.float64)
        if parameters.shape != cls.numbers_shape(domain) or not np.isfinite(parameters).all():
            raise ValueError("wrong size, or a number is not finite")
        return cls.from_numbers(parameters, domain)

    def _repr_html_(self) -> str:
        rows = zip((*self.term_names, "(constant)"), self.parameters.T.tolist(), strict=True)
        cells = [[name, *(f"{weight:.4g}" for weight in weights)] for name, weights in rows]
        return html_table(["weight in the score", *self.score_names], cells)

    def __repr__(self) -> str:
        sizes = f"{len(self.action_names)} actions, {len(self.feature_names)} features"
        return f"{type(self).__name__}({sizes})"


def linear_fields(policy: Policy) -> dict[str, Any]:
    """What the policy has as a linear one, or its linear part, by name."""
    return {field.name: getattr(policy, field.name) for field in fields(LinearPolicy)}


def known_scores(scores: FloatArray) -> FloatArray:
    """The scores, with NaN for an action that no client has a score for."""
    return np.where(scores > NEVER / 10, scores, np.nan)


def constant_policy(
    action: str, action_names: tuple[str, ...], feature_names: tuple[str, ...]
) -> LinearPolicy:
    """A policy that gives everybody the same action."""
    if action not in action_names:
        raise OptionError(f"policy: '{action}' is not an action; there are {quoted(action_names)}")
    parameters = np.zeros((len(action_names), len(feature_names) + 1))
    parameters[action_names.index(action), -1] = 1.0
    return LinearPolicy(parameters, action_names, feature_names)
