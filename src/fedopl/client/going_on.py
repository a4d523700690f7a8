"""A study that screens for terms or measures ranges continues as a new one with those found.

The server says once which they are. A client stores them with its rows and continues with that
study and no other. So the server cannot get sums of one set of terms after another.
"""

from fedopl.base.errors import WireError
from fedopl.client.disclosure.study_history import StudyHistory
from fedopl.messages.codec import Decoder, study_asked_about
from fedopl.messages.learning.found_terms import TakeFound
from fedopl.messages.private.noised_moments import TakeRanges
from fedopl.study.study import Study


def study_gone_on_as(
    study: Study, history: StudyHistory, content: bytes, decoder: Decoder
) -> Study | None:
    """The study that this one continues as, by the first query that said so; None if none did.

    A query says so if its hash is that of the study with the terms that it names.
    """
    kind = f"found for {study.digest.hex()}"
    if kept := history.first(kind):
        if study.privacy:
            return TakeRanges(ranges=kept["ranges"]).study_after(study)
        pairs, thresholds, found = kept["pairs"], kept["thresholds"], kept["found"]
        return TakeFound(pairs=pairs, thresholds=thresholds, found=found).study_after(study)
    told = _told(content, decoder)
    after = None if told is None else told.study_after(study)
    if told is None or after is None or after.digest != study_asked_about(content):
        return None
    history.require_first(kind, **dict(told.named_arrays()))
    return after


def _told(content: bytes, decoder: Decoder) -> TakeFound | TakeRanges | None:
    """The query, if it says what was found, else None."""
    try:
        query = decoder.decode(content)
    except WireError:
        return None
    return query if isinstance(query, TakeFound | TakeRanges) else None
