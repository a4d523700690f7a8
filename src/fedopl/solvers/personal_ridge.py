"""A client's own solution, shrunk toward the solution of all others, at every strength.

Terms φ are standardised, and scores Γ̂ are taken less their mean over actions, since only
differences decide. The solution at strength r minimises Σ (Γ̂ − φᵀθ)² + |θ − θ₋c|²/r, where θ₋c is
what all others learn. At r = 0 it is the others' solution; as r grows, it tends to the client's own
least squares. One eigendecomposition gives the solution for every r, and the likelihood of r, where
θ ~ N(θ₋c, r·σ²) and scores have errors N(0, σ²).
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, to_eight_digits
from fedopl.base.decompositions import eigh
from fedopl.policies.linear import NEVER

# Strengths to choose from: squared effects of a standardised term, in units of the errors of
# scores. They are zero, and five to each power of ten.
RIDGE_STRENGTHS: FloatArray = np.concatenate([[0.0], np.logspace(-6, 3, 46)])
RIDGE_STRENGTHS.flags.writeable = False
# Rounding in a sum of squares after a fit has been subtracted.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class Scaling:
    """How terms are standardised: their means and standard deviations in the mixture.

    A term whose deviation is zero is not used. The intercept comes last, with 0 and 1.
    """

    centre: FloatArray  # (n_terms + 1,)
    scale: FloatArray  # (n_terms + 1,)

    @classmethod
    def none(cls, n_columns: int) -> "Scaling":
        """No standardisation, for columns that count as they are, such as the leaves of a tree."""
        return cls(centre=np.zeros(n_columns), scale=np.ones(n_columns))

    @classmethod
    def at_client(cls, gram: FloatArray, used: BoolArray) -> "Scaling":
        """By one client's mean squares and products, of the terms that are used.

        A term that never varies there counts as it is: own rows say nothing of it.
        """
        centre = gram[-1] / gram[-1, -1]
        squares = np.diagonal(gram) / gram[-1, -1]
        variances = squares - centre**2
        scale = np.sqrt(np.where(variances > _ROUNDING * squares, variances, 1.0))
        centre[-1], scale[-1] = 0.0, 1.0
        return cls(centre=centre, scale=np.where(used, scale, 0.0))

    @property
    def used(self) -> BoolArray:  # (n_terms + 1,)
        """Which terms are used."""
        return self.scale > 0

    @property
    def matrix(self) -> FloatArray:  # (n_used, n_terms + 1)
        """The matrix T that standardises terms: z = T·φ."""
        safe = np.where(self.used, self.scale, 1.0)
        whole = np.diag(1 / safe)
        whole[:-1, -1] = -(self.centre / safe)[:-1]
        return np.asarray(whole[self.used])

    def forth(self, parameters: FloatArray) -> FloatArray:  # (n_actions, n_used)
        """Convert coefficients of raw terms, 0 for unused ones, to those of standardised terms."""
        found = parameters * self.scale
        found[:, -1] = parameters[:, -1] + parameters[:, :-1] @ self.centre[:-1]
        return np.asarray(found[:, self.used])


@dataclass(frozen=True, eq=False, kw_only=True)
class ShrunkPath:
    """All solutions between a given one and least squares, and the likelihood of each."""

    given: FloatArray  # (n_responses, n_columns)
    eigenvalues: FloatArray  # (n_columns,) of Σ φφᵀ
    vectors: FloatArray  # (n_columns, n_columns)
    slopes: FloatArray  # (n_responses, n_columns): Σ φ·(Γ̂ − φᵀθ₋c), along the vectors
    squares: float  # Σ (Γ̂ − φᵀθ₋c)²
    n_values: float  # how many independent numbers those are
    n_fits: int  # how many independent ones the coefficients of each column are

    def at(self, strength: float) -> FloatArray:  # (n_responses, n_columns)
        """The solution at this strength; at an infinite strength, least squares."""
        return np.asarray(self.given + (self.slopes * self._gains(strength)) @ self.vectors.T)

    def mean(self, weights: FloatArray) -> FloatArray:  # (n_responses, n_columns)
        """The mean of the solutions at the public strengths, weighted by `weights`."""
        gains = weights @ (
            RIDGE_STRENGTHS[:, None] / (1 + RIDGE_STRENGTHS[:, None] * self.eigenvalues)
        )
        return np.asarray(self.given + (self.slopes * gains) @ self.vectors.T)

    def _gains(self, strength: float) -> FloatArray:  # (n_columns,)
        if np.isfinite(strength):
            return np.asarray(strength / (1 + strength * self.eigenvalues))
        spanned = self.eigenvalues > _ROUNDING * self.eigenvalues.max(initial=0.0)
        return np.divide(1.0, self.eigenvalues, where=spanned, out=np.zeros_like(self.eigenvalues))

    def log_likelihoods(self) -> FloatArray:  # (n_strengths,)
        """Log-likelihood of each strength less that of 0; coefficients integrated out, best σ²."""
        if self.n_values <= 0 or self.squares <= 0:
            return np.zeros(len(RIDGE_STRENGTHS))
        determinant = np.log(1 + RIDGE_STRENGTHS[:, None] * self.eigenvalues).sum(axis=1)
        left = np.log(self.shares_left(RIDGE_STRENGTHS))
        return np.asarray(-0.5 * (self.n_values * left + self.n_fits * determinant))

    def shares_left(self, strengths: FloatArray) -> FloatArray:  # (n_strengths,)
        """The share of squares left at each strength, with the cost of moving coefficients."""
        grown = 1 + strengths[:, None] * self.eigenvalues
        taken = ((self.slopes**2).sum(axis=0) * strengths[:, None] / grown).sum(axis=1)
        return np.maximum(1 - taken / self.squares, _ROUNDING) if self.squares else 0 * strengths

    def variance(self, strength: float) -> float:
        """σ² at this strength."""
        left = float(self.shares_left(np.array([strength]))[0])
        return self.squares * left / self.n_values if self.n_values else 0.0


def shrunk_path(
    gram: FloatArray,
    products: FloatArray,
    squares: float,
    given: FloatArray,
    sizes: tuple[float, int],
) -> ShrunkPath:
    """The path from sums Σ φφᵀ, Σ φ·Γ̂ and Σ Γ̂²; `sizes` counts independent values and fits."""
    eigenvalues, vectors = eigh(gram)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    slopes = (products - given @ gram) @ vectors
    left = squares - 2 * float((given * products).sum()) + float(((given @ gram) * given).sum())
    n_values, n_fits = sizes
    return ShrunkPath(
        given=given,
        eigenvalues=eigenvalues,
        vectors=vectors,
        slopes=slopes,
        squares=max(left, 0.0),
        n_values=n_values,
        n_fits=n_fits,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnSums:
    """One client's mean squares and products of terms and scores."""

    gram: FloatArray  # (n_terms + 1, n_terms + 1)
    products: FloatArray  # (n_actions, n_terms + 1)
    known: BoolArray  # (n_actions,): every row has a score
    squares: float  # the mean of Σ_a (Γ̂(a) − mean of Γ̂)², over known actions
    n_rows: float

    @classmethod
    def of(
        cls, means: tuple[FloatArray, FloatArray, FloatArray], squares: float, n_rows: float
    ) -> "OwnSums":
        """From the Gram matrices, products and shares of a client's score sums."""
        grams, products, shares = means
        known = scored_in_all_rows(shares)
        first = int(np.argmax(known)) if len(grams) > 1 else 0
        return cls(
            gram=grams[first], products=products, known=known, squares=squares, n_rows=n_rows
        )


def scored_in_all_rows(shares: FloatArray) -> BoolArray:  # (n_actions,)
    """Which actions have a score in every row, by the share of rows that have one."""
    return np.asarray(shares > 1 - _ROUNDING)


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonalPath:
    """A client's policies between the policy of all others and its own."""

    others: FloatArray  # (n_actions, n_terms + 1): θ₋c
    compared: BoolArray  # (n_actions,): what it has scores for, as others have
    scaling: Scaling
    path: ShrunkPath

    @classmethod
    def of(cls, own: OwnSums, others: FloatArray, scaling: Scaling) -> "PersonalPath":
        """The path from a client's sums and the policy of all others."""
        compared = own.known & (others[:, -1] > NEVER / 10)
        if compared.sum() < 2:
            compared = np.zeros_like(compared)
        turned, n_fits = scaling.matrix, max(int(compared.sum()) - 1, 0)
        path = shrunk_path(
            own.n_rows * turned @ own.gram @ turned.T,
            own.n_rows * less_mean(own.products @ turned.T, compared),
            own.n_rows * own.squares,
            less_mean(scaling.forth(others), compared),
            (own.n_rows * n_fits, n_fits),
        )
        return cls(others=others, compared=compared, scaling=scaling, path=path)

    def log_likelihoods(self) -> FloatArray:  # (n_strengths,)
        """Log-likelihood of each public strength minus that of 0; 0 if nothing is compared."""
        return self.path.log_likelihoods()

    def at(self, strength: float) -> FloatArray:  # (n_actions, n_terms + 1)
        """The parameters at a strength; actions that are not compared keep the others'."""
        return self.others if not strength else self._unscaled(self.path.at(strength))

    def mean(self, weights: FloatArray) -> FloatArray:  # (n_actions, n_terms + 1)
        """The mean of the parameters at the public strengths, weighted by `weights`."""
        return self.others if weights[0] == 1 else self._unscaled(self.path.mean(weights))

    def _unscaled(self, own: FloatArray) -> FloatArray:  # (n_actions, n_terms + 1)
        if not self.compared.any():
            return self.others
        common = self.others[self.compared].mean(axis=0)
        raw = own @ self.scaling.matrix + common
        return np.where(self.compared[:, None], raw, self.others)


def less_mean(values: FloatArray, known: BoolArray) -> FloatArray:  # shaped as values
    """Values by action, less their mean over the known actions; unknown actions get 0."""
    if not known.any():
        return np.zeros_like(values)
    return np.where(known[:, None], values - values[known].mean(axis=0), 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Strengths:
    """Likelihoods of the public strengths: from a client's own rows, and from the other clients.

    A client whose own rows say little follows the others. A client that clearly differs follows its
    own rows.
    """

    own: FloatArray  # (n_strengths,): logarithms
    others: FloatArray  # (n_strengths,): the mean of the others' logarithms

    @property
    def weights(self) -> FloatArray:  # (n_strengths,)
        """What each counts for: a mean over all is surer than the likeliest alone."""
        from scipy.special import softmax  # here, as it is slow to import

        return np.asarray(softmax(self.own + self.others))

    @property
    def best(self) -> float:
        """The likeliest strength; among equally likely ones, the smallest."""
        return float(RIDGE_STRENGTHS[int(np.argmax(self.own + self.others))])

    @property
    def evidence(self) -> float:
        """Log of the mean likelihood of own rows over strengths, relative to strength zero.

        It leaves out what the others say, since a client may differ in a way that the others' rows
        cannot show.
        """
        from scipy.special import logsumexp  # here, as it is slow to import

        return float(logsumexp(self.own) - np.log(len(self.own)))


@dataclass(frozen=True, eq=False, kw_only=True)
class WeighedPath:
    """A client's policies at all strengths, and what each strength counts for."""

    path: PersonalPath
    strengths: Strengths

    @classmethod
    def of(
        cls, own: OwnSums, others: FloatArray, scaling: Scaling, likelihoods: FloatArray
    ) -> "WeighedPath":
        """By own rows, after how likely strengths are by the others'."""
        path = PersonalPath.of(own, others, scaling)
        strengths = Strengths(own=path.log_likelihoods(), others=likelihoods)
        return cls(path=path, strengths=strengths)

    @property
    def mean(self) -> FloatArray:  # (n_actions, n_terms + 1)
        """The mean of the parameters at all strengths."""
        return self.path.mean(self.strengths.weights)

    @property
    def variance(self) -> float:
        """Of what the likeliest strength leaves of scores."""
        return self.path.path.variance(self.strengths.best)


NO_OTHERS: FloatArray = np.zeros(len(RIDGE_STRENGTHS))
NO_OTHERS.flags.writeable = False


# --- effects that saturate -----------------------------------------------------------------------

N_KNOTS = 9


@dataclass(frozen=True, eq=False, kw_only=True)
class Bend:
    """f(z) = s·z + Σ_k w_k·max(z − t_k, 0), and its likelihood relative to z itself.

    With z_a = θ₋c,aᵀφ, the index by the other clients' policy, scores less their row's mean are
    f(z_a) less its mean over actions. The fit is shrunk toward z, just as a personal policy is
    shrunk toward the policy of all others. So the likelihoods of both can be compared.
    """

    knots: FloatArray  # (n_knots,)
    slopes: FloatArray  # (n_knots + 1,)
    evidence: float  # the logarithm of how likely own rows are, beside z itself


def knots_of(index: FloatArray) -> FloatArray:  # (at most N_KNOTS,)
    """Quantiles of `index`, (n_rows, n_compared), over rows and actions."""
    found = np.quantile(index, np.arange(1, N_KNOTS + 1) / (N_KNOTS + 1))
    # On another processor, quantiles that are equal here may differ in their last bits.
    return np.unique(to_eight_digits(found))


class BendSums:
    """Sums over rows of squares and products of index hinges and scores."""

    def __init__(self, knots: FloatArray, unit: float) -> None:
        self.knots, self.unit = knots, unit if unit > 0 else 1.0
        width = len(knots) + 1
        self._gram, self._products = np.zeros((width, width)), np.zeros(width)
        self._squares = self._total = self._rows = 0.0
        self._n_compared = 0

    def add(self, index: FloatArray, scores: FloatArray, weights: FloatArray | None) -> None:
        """Add rows: index and scores of the actions that are compared, (n_rows, n_compared)."""
        own = np.ones(len(index)) if weights is None else weights
        hinges = np.maximum(index[..., None] - self.knots, 0.0)
        columns = np.concatenate([index[..., None], hinges], axis=-1) / self.unit
        columns -= columns.mean(axis=1, keepdims=True)
        left = (scores - index) - (scores - index).mean(axis=1, keepdims=True)
        self._gram += np.einsum("n,nai,naj->ij", own, columns, columns, optimize=True)
        self._products += np.einsum("n,nai,na->i", own, columns, left, optimize=True)
        self._squares += float(own @ (left**2).sum(axis=1))
        self._total, self._rows = self._total + float(own.sum()), self._rows + len(index)
        self._n_compared = index.shape[1]

    def bend(self) -> Bend:
        """The mean of the fitted functions at all strengths, weighted by their likelihoods."""
        path, scale = self._path()
        strengths = Strengths(own=path.log_likelihoods(), others=NO_OTHERS)
        moved = path.mean(strengths.weights)[0] / scale / self.unit
        moved[0] += 1.0
        return Bend(knots=self.knots, slopes=moved, evidence=strengths.evidence)

    def _path(self) -> tuple[ShrunkPath, FloatArray]:
        """The path of fits in standardised columns, with row weights that average to one."""
        per_row = self._rows / self._total if self._total else 0.0
        squares = np.diagonal(self._gram) / max(self._total, 1e-300)
        scale = np.sqrt(np.where(squares > 0, squares, 1.0))
        gram = per_row * self._gram / np.outer(scale, scale)
        products = per_row * (self._products / scale)[None, :]
        nothing = np.zeros_like(products)
        n_values = self._rows * (self._n_compared - 1)
        return shrunk_path(gram, products, per_row * self._squares, nothing, (n_values, 1)), scale
