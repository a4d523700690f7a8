"""Numbers that models belie, in a section: folded away, below a sentence that says so."""

from collections.abc import Mapping

from fedopl.report.parts import Folded, Part, Text
from fedopl.report.words.policy_labels import opened
from fedopl.results.model_doubts import TOO_SIMPLE
from fedopl.results.record import Record

IN_DOUBT = "in doubt"


def folded_if_doubted(record: Record, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts; shown when asked for where richer models surely move what is in them."""
    if not record.is_doubted:
        return parts
    what = (
        f"{opened(TOO_SIMPLE)}, so nothing is claimed here. What they come to is wrong by about as "
        "much as richer outcome models move values, which is more than the intervals say."
    )
    return (Text(what), Folded(summary="What the models come to all the same", parts=parts))


def verdict_words(record: Record, words: Mapping[str, str]) -> dict[str, str]:
    """What verdicts are called; none is given where models are doubted."""
    return dict.fromkeys(words, IN_DOUBT) if record.is_doubted else dict(words)
