"""Cautious policies: linear scores minus the uncertainty of each action's outcome in a context."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.policies.export.target import Target, Term
from fedopl.policies.linear import ROWS_OF_TERMS, LinearPolicy, linear_fields
from fedopl.policies.policy import Domain, checked_contexts


@dataclass(frozen=True, eq=False, repr=False)
class CautiousPolicy(LinearPolicy):
    """π(x) = argmax_a θ_aᵀb(x) − |D_a b(x)|, with b the terms and a one; ties as in linear ones.

    |D_a b(x)| is β standard errors of the outcome of action a in context x. In messages of a study
    with caution, every linear policy has room for D, which is zero if the policy is certain.
    """

    kind: ClassVar[str] = "cautious"

    doubts: FloatArray = field(kw_only=True)  # (n_actions, n_terms + 1, n_terms + 1), D, triangular

    @classmethod
    def doubting(cls, policy: LinearPolicy, doubts: FloatArray) -> Self:
        """A linear policy with these doubts about its actions."""
        # Adding 0 gives zeros without a sign, as they are when read from a file again.
        return cls(**linear_fields(policy), doubts=doubts + 0.0)

    def on_terms_of_all_rows(self) -> Self:
        """The same policy without the terms that were found only without some fold."""
        plain = super().on_terms_of_all_rows()
        if plain is self or self.terms is None:
            return self
        kept = np.array([*self.terms.usable(self.terms.n_terms), self.terms.n_terms])
        return replace(plain, doubts=self.doubts[:, kept[:, None], kept])

    @property
    def n_used(self) -> int:
        """The number of first terms that its scores or its doubts need."""
        used = self.coefficients.any(axis=0) | self.doubts[:, :, :-1].any(axis=(0, 1))
        return int(np.flatnonzero(used)[-1]) + 1 if used.any() else 0

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The score of each action minus the doubt about it; the largest decides."""
        return self.linear(contexts) - self.doubted(contexts)

    def doubted(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """What is subtracted from each score: β standard errors."""
        rows = checked_contexts(contexts, self.feature_names)
        found = np.zeros((len(rows), len(self.doubts)))
        needed = [*range(self.n_used), -1]
        for start in range(0, len(rows), ROWS_OF_TERMS):
            some = slice(start, start + ROWS_OF_TERMS)
            used = rows[some] if self.terms is None else self.terms.of(rows[some], self.n_used)
            terms = np.column_stack([used[:, : self.n_used], np.ones(len(used))])
            for action, own in enumerate(self.doubts):
                if own.any():
                    parts = terms @ own[:, needed].T
                    np.clip(parts, -Target.largest_squared, Target.largest_squared, out=parts)
                    found[some, action] = np.sqrt((parts**2).sum(axis=1))
        return found

    def written_in(self, target: Target[Term]) -> Term:
        """The action with the largest score minus doubt, in another language."""
        n_actions = len(self.parameters)
        owners, rows = np.nonzero(self.doubts.any(axis=2))
        names = [
            f"doubt {row + 1} about {self.action_names[own]}"
            for own, row in zip(owners, rows, strict=True)
        ]
        wide = np.vstack([self.parameters, self.doubts[owners, rows]])
        sums = target.weighted_sums([*self.score_names, *names], *self.columns_in(target, wide))
        doubts = list(zip(owners.tolist(), sums[n_actions:], strict=True))
        scores = [
            target.less_length(sums[action], [one for own, one in doubts if own == action])
            for action in range(n_actions)
        ]
        return target.largest(dict(enumerate(target.kept("net", self.score_names, scores))))

    # --- numbers and files ---------------------------------------------------------------------

    def numbers(self) -> FloatArray:  # (n_scores, n_terms + 1 and the upper triangle of D)
        """The policy as a message carries it."""
        return _together(self.parameters, self.doubts)

    def numbers_for(self, domain: Domain) -> FloatArray:
        """The numbers in a domain with further terms, for which the policy has no doubts."""
        width, n_used = self.n_columns(domain), self.n_used
        doubts = np.zeros((len(self.parameters), width, width))
        own, there = np.array([*range(n_used), self.parameters.shape[1] - 1]), np.arange(n_used + 1)
        there[-1] = width - 1
        doubts[:, there[:, None], there] = self.doubts[:, own[:, None], own]
        parameters = np.zeros((len(self.parameters), width))
        parameters[:, there] = self.parameters[:, own]
        return _together(parameters, doubts)

    @classmethod
    def from_numbers(cls, numbers: FloatArray, domain: Domain) -> Self:
        """The policy that a message carried."""
        width = cls.n_columns(domain)
        doubts = np.zeros((len(numbers), width, width))
        doubts[:, *np.triu_indices(width)] = numbers[:, width:]
        return cls.doubting(LinearPolicy.from_numbers(numbers[:, :width], domain), doubts)

    def content(self) -> dict[str, Any]:
        """The saved content, besides actions and features."""
        plain = super().content()
        doubts = [own.tolist() for own in self.doubts]
        scores = [{**one, "doubt": own} for one, own in zip(plain["scores"], doubts, strict=True)]
        return {**plain, "scores": scores}

    @classmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The saved policy; a ValueError, KeyError or TypeError if the content is invalid."""
        policy = LinearPolicy.from_content(content, domain)
        doubts = np.array([score["doubt"] for score in content["scores"]], np.float64)
        width = policy.parameters.shape[1]
        if doubts.shape != (len(policy.parameters), width, width) or not np.isfinite(doubts).all():
            raise ValueError("doubts of the wrong size, or a number is not finite")
        return cls.doubting(policy, np.triu(doubts))


def _together(parameters: FloatArray, doubts: FloatArray) -> FloatArray:
    """Each action's parameters, then the upper triangle of its doubts."""
    triangle = np.triu_indices(doubts.shape[1])
    return np.concatenate([parameters, doubts[:, *triangle]], axis=1)
