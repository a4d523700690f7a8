"""The caution about a basis that the study asked for, and that the policy could not use."""

from collections.abc import Iterator

from fedopl.messages.learning.score_sums_by_fold import SumByFold
from fedopl.report.explain.chosen_terms import term_choice_of
from fedopl.report.parts import Caution
from fedopl.report.words.numbers import count, listed
from fedopl.results.record import Record


def basis_cautions(record: Record) -> Iterator[Caution]:
    """A caution if no client sent the sums by fold that a choice of terms needs."""
    choice = term_choice_of(record)
    if choice is None or choice.family is not None:
        return
    terms = record.study.n_terms
    why = f" ({reasons})" if (reasons := listed(_reasons(record))) else ""
    yield Caution(
        "The basis was not used",
        f"The study has a basis of {count(terms)} terms, and no client sent sums of them by "
        f"fold{why}: the policy is linear in the features.",
        "It misses effects that bend, jump or are of several features together. A client adds "
        f"sums of so many terms if it has ({count(terms)} + 1) / parameter_share rows to learn "
        "from. Let clients run `fedopl check`, which says how many they have, and with how many "
        "terms they would add sums. Leave out waves, products or knots, and run again.",
    )


def _reasons(record: Record) -> list[str]:
    """Why clients sent no sums by fold, in the words of refusals' codes."""
    asked = {latest.exchange for latest in record.rounds if latest.query == SumByFold.__name__}
    return sorted({why for exchange, _, why in record.refusals if exchange in asked})
