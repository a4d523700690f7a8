"""A study that screens for pairs of features goes on as another: the same with those found.

Which they are, the server says once. A client keeps it with its rows and goes on with that study
and no other, so that nobody gets sums of one set of products after another.
"""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import WireError
from fedopl.client.disclosure.release_history import ReleaseHistory
from fedopl.messages.codec import Decoder, study_asked_about
from fedopl.messages.learning.product_screening import TakePairs
from fedopl.study.found_pairs import after_screening
from fedopl.study.study import Study


def study_gone_on_as(
    study: Study, history: ReleaseHistory, content: bytes, decoder: Decoder
) -> Study | None:
    """The study that this one goes on as, by what was said first; None if nothing was.

    A query whose hash is that of the study with the pairs that it names is the first to say so.
    """
    kind = f"pairs of {study.digest.hex()}"
    if (kept := history.first(kind)) and "pairs" in kept:
        return _with(study, kept["pairs"])
    pairs = _told(content, decoder)
    found = None if pairs is None else _with(study, pairs)
    if pairs is None or found is None or found.digest != study_asked_about(content):
        return None
    history.require_first(kind, pairs=pairs)
    return found


def _with(study: Study, pairs: FloatArray) -> Study | None:
    """The study with these pairs, given by the places of features; None if it can have no such."""
    named = TakePairs(pairs=pairs).names(study)
    try:
        return None if named is None else after_screening(study, named)
    except ValueError:  # one of them twice, or of a feature with itself
        return None


def _told(content: bytes, decoder: Decoder) -> FloatArray | None:  # (n_pairs, 2)
    """The pairs that a query says were found, if it does."""
    try:
        query = decoder.decode(content)
    except WireError:
        return None
    return np.array(query.pairs) if isinstance(query, TakePairs) else None
