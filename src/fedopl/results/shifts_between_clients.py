"""How clients differ: their models, and classifiers that tell their contexts apart (Theorem 3)."""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray

# One number for every two clients, None where nobody told it.
Table = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Shift:
    """One part of Theorem 3 for every two clients: of the first, at its contexts, from the second.

    Estimates are about right on average, so that those of small shifts may be negative. A client
    from itself is 0.
    """

    names: tuple[str, ...]
    estimates: Table
    standard_errors: Table

    def divergences(self, client: str) -> FloatArray:  # (n_clients,)
        """Of one client from each, none below 0 and NaN where nobody told, as bounds take them."""
        found = np.array(self.estimates[self.names.index(client)], np.float64)
        return np.maximum(found, 0.0)


@dataclass(frozen=True, kw_only=True)
class ModelShift:
    """How clients' models differ."""

    names: tuple[str, ...]
    propensity_kl: Shift
    propensity_tv: Shift
    outcome_kl: Shift  # over the actions that both clients have models of


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """Tells the target's contexts from the others'; the intercept is the last parameter."""

    parameters: tuple[float, ...]
    n_steps: int
    converged: bool
    total_variation: float | None  # at least; 2·accuracy − 1 on held-out rows, None if not told
    standard_error: float | None
