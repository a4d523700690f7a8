"""Bent policies: one function is applied to linear scores before the largest decides."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray
from fedopl.policies.export.target import Target, Term
from fedopl.policies.linear import NEVER, LinearPolicy, linear_fields
from fedopl.policies.policy import Domain


@dataclass(frozen=True, eq=False, repr=False)
class BentPolicy(LinearPolicy):
    """π(x) = argmax_a f(θ_aᵀφ(x)), f(z) = s·z + Σ_k w_k·max(z − t_k, 0); ties as in linear ones.

    It represents a client's effects that saturate or turn. No message carries such a policy.
    """

    kind: ClassVar[str] = "bent"

    knots: FloatArray = field(kw_only=True)  # (n_knots,): t
    slopes: FloatArray = field(kw_only=True)  # (n_knots + 1,): s, then w

    @classmethod
    def bending(cls, policy: LinearPolicy, knots: FloatArray, slopes: FloatArray) -> Self:
        """A linear policy whose scores go through this function."""
        return cls(**linear_fields(policy), knots=knots, slopes=slopes)

    def scores(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The bent score of each action; the largest decides."""
        plain = self.linear(contexts)
        return np.where(plain > NEVER / 10, self.bent(plain), plain)

    def bent(self, scores: FloatArray) -> FloatArray:  # shaped as scores
        """The function f(z) applied to each score."""
        found: FloatArray = self.slopes[0] * scores
        for knot, slope in zip(self.knots, self.slopes[1:], strict=True):
            found += slope * np.maximum(scores - knot, 0.0)
        return found

    def written_in(self, target: Target[Term]) -> Term:
        """The action with the largest bent score, in another language."""
        known = [place for place, low in enumerate(self.intercepts) if low > NEVER / 10]
        plain = self.linear_in(target)
        columns, width = [], len(self.slopes)
        parameters = np.zeros((len(known), len(known) * width + 1))
        for row, place in enumerate(known):
            name, score = self.action_names[place], plain[place]
            columns.append((f"{name} itself", score))
            columns += [
                (f"{name} beyond {number}", target.above(score, float(knot)))
                for number, knot in enumerate(self.knots, start=1)
            ]
            parameters[row, row * width : (row + 1) * width] = self.slopes
        names = [f"{self.action_names[place]}, bent" for place in known]
        return target.largest(
            dict(zip(known, target.weighted_sums(names, columns, parameters), strict=True))
        )

    # --- numbers and files ---------------------------------------------------------------------

    def numbers(self) -> FloatArray:
        """All numbers of the policy in one array; equal policies have equal numbers."""
        return np.concatenate([self.parameters.ravel(), self.knots, self.slopes])

    def content(self) -> dict[str, Any]:
        """The saved content, besides actions and features."""
        bend = {"knots": self.knots.tolist(), "slopes": self.slopes.tolist()}
        return {**super().content(), "bend": bend}

    @classmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The saved policy; a ValueError, KeyError or TypeError if the content is invalid."""
        policy = LinearPolicy.from_content(content, domain)
        knots, slopes = (np.array(content["bend"][key], np.float64) for key in ("knots", "slopes"))
        if knots.ndim != 1 or slopes.shape != (len(knots) + 1,):
            raise ValueError("a bend of the wrong size")
        if not (np.isfinite(knots).all() and np.isfinite(slopes).all()):
            raise ValueError("a number of the bend is not finite")
        return cls.bending(policy, knots, slopes)
