"""A basis for the given features: where effects may bend, and which features may interact."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.toml_file import toml_key, toml_text
from fedopl.policies.basis import FAMILIES, Basis, lacking
from fedopl.policies.terms import Terms

# One standard deviation to either side of the middle, if a feature is normal.
KNOT_QUANTILES = (0.16, 0.5, 0.84)
FEWEST_VALUES = 6  # a number with fewer values is a grade or a flag, and does not bend
MOST_PRODUCTS = 60
MOST_THRESHOLDS = 6
MOST_SAMPLED = 10_000
USUAL_WAVES = 200


def drafted_basis(
    columns: Mapping[str, Sequence[FloatArray]],
    kind: str = "auto",
    most_terms: float = math.inf,
    *,
    n_screenings: int = 0,
    seed: int = 0,
) -> Basis | None:
    """The basis for features with these values, one array per client; None if nothing bends.

    Knots are round numbers near the quantiles of all clients together, in which each client counts
    by its rows. So no knot stands for anybody's value. With "auto" there are at most `most_terms`
    terms: products are left out first, and then everything. If there are too many products,
    screening finds those that matter. If screening is not possible, products are of numbers only.
    There is room for all that this many screenings may find, each of them something else.
    There are waves only if `kind` asks for them, and the seed draws them.
    """
    kinds = [family for family in FAMILIES if family != "thresholds"]
    if kind not in ("auto", *kinds):
        raise OptionError(f"basis: expected auto, {', '.join(kinds)} or a Basis, came '{kind}'")
    if kind == "linear":
        return None
    knots = {name: found for name, parts in columns.items() if (found := _knots(parts))}
    if not knots:
        return None
    waves = {"waves": USUAL_WAVES, "wave_seed": seed} if kind == "waves" else {}
    names, plain = tuple(columns), Basis.model_validate({"kind": kind, "knots": knots} | waves)
    most = math.inf if kind != "auto" else most_terms
    room = min((most - Terms(plain, names).n_terms) / 2 / max(n_screenings, 1), MOST_PRODUCTS)
    if n_screenings and kind != "hinges" and math.comb(len(names), 2) > MOST_PRODUCTS and room >= 1:
        return plain.model_copy(update={"screened_pairs": math.floor(room)})
    # All features, or the numbers among them, or none, as their products fit.
    sets = (names, tuple(knots))
    multiplied = next((some for some in sets if math.comb(len(some), 2) <= MOST_PRODUCTS), ())
    for products in dict.fromkeys((multiplied, ())):
        basis = plain.model_copy(update={"products": products})
        # A corner of two thresholds takes three terms.
        left = (most - Terms(basis, names).n_terms) / 3
        if left >= 0:
            screens = n_screenings > 0 and kind == "auto"
            screened = math.floor(min(left / n_screenings, MOST_THRESHOLDS)) if screens else 0
            return basis.model_copy(update={"screened_thresholds": screened})
    return None


def fewest_terms(columns: Mapping[str, Sequence[FloatArray]]) -> int:
    """How many terms a drafted basis has at least, without products; 0 if nothing bends."""
    basis = drafted_basis(columns)
    if basis is None:
        return 0
    return Terms(basis.model_copy(update={"products": ()}), tuple(columns)).n_terms


def basis_lines(basis: Basis | None, confirm: str) -> Iterator[str]:
    """The lines of a basis in a drafted study, with what to confirm."""
    if basis is None:
        return
    yield from ("", f"[basis]  # {confirm}: may effects bend? Without this, all is linear")
    yield f'kind = "{basis.kind}"'
    if basis.products:
        named = ", ".join(map(toml_text, basis.products))
        yield f"products = [{named}]  # {confirm}: may any two of these act together?"
    if basis.screened_pairs:
        what = "have clients first find which features act together, at most this many pairs?"
        yield f"screened_pairs = {basis.screened_pairs}  # {confirm}: {what}"
    if basis.screened_thresholds:
        what = "have clients first find where outcomes jump, at most at this many values?"
        yield f"screened_thresholds = {basis.screened_thresholds}  # {confirm}: {what}"
    if basis.waves:
        yield from (f"waves = {basis.waves}", f"wave_seed = {basis.wave_seed}")
    yield from ("", f"[basis.knots]  # {confirm}: where each may bend, two values or more")
    yield from (
        f"{toml_key(name)} = [{', '.join(map('{:g}'.format, knots))}]"
        for name, knots in basis.knots.items()
    )


def _knots(parts: Sequence[FloatArray]) -> tuple[float, ...]:
    samples = [part[:: max(1, len(part) // MOST_SAMPLED)] for part in parts if len(part)]
    if not samples or len(np.unique(np.concatenate(samples))) < FEWEST_VALUES:
        return ()
    by_client = np.array([np.quantile(sample, KNOT_QUANTILES) for sample in samples])
    low, middle, high = np.average(
        by_client, axis=0, weights=[len(part) for part in parts if len(part)]
    )
    apart = (high - low) / 2
    if not apart > 0:
        return ()
    # To a tenth of the distance between knots, as a power of ten.
    digits = 1 - math.floor(math.log10(apart))
    found = sorted({round(float(knot), digits) + 0.0 for knot in (low, middle, high)})
    return () if lacking(tuple(found)) else tuple(found)
