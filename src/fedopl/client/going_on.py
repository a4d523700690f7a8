"""A study that screens for terms goes on as another: the same with those found.

Which they are, the server says once. A client keeps it with its rows and goes on with that study
and no other, so that nobody gets sums of one set of terms after another.
"""

from fedopl.base.errors import WireError
from fedopl.client.disclosure.release_history import ReleaseHistory
from fedopl.messages.codec import Decoder, study_asked_about
from fedopl.messages.learning.found_terms import TakeFound
from fedopl.study.screened_study import after_screening
from fedopl.study.study import Study


def study_gone_on_as(
    study: Study, history: ReleaseHistory, content: bytes, decoder: Decoder
) -> Study | None:
    """The study that this one goes on as, by what was said first; None if nothing was.

    A query whose hash is that of the study with the terms that it names is the first to say so.
    """
    kind = f"found for {study.digest.hex()}"
    if kept := history.first(kind):
        return _with(study, TakeFound(pairs=kept["pairs"], thresholds=kept["thresholds"]))
    told = _told(content, decoder)
    found = None if told is None else _with(study, told)
    if told is None or found is None or found.digest != study_asked_about(content):
        return None
    history.require_first(kind, pairs=told.pairs, thresholds=told.thresholds)
    return found


def _with(study: Study, told: TakeFound) -> Study | None:
    """The study with what a query names; None if it can have no such terms."""
    named = told.named(study)
    try:
        return None if named is None else after_screening(study, named)
    except ValueError:  # one of them twice, or of a feature with itself
        return None


def _told(content: bytes, decoder: Decoder) -> TakeFound | None:
    """The query that says what was found, if it does."""
    try:
        query = decoder.decode(content)
    except WireError:
        return None
    return query if isinstance(query, TakeFound) else None
