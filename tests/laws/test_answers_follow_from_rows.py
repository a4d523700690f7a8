"""Laws of the exact contract: in studies of all kinds, what leaves follows from the rows alone.

The same rows in another order, and rows that differ in what 1 to 4 of them have, give the same
bytes; and every question is answered once.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from honest_questions import FLAG, STUDIES, asked_about, columns_of, heard, opened, read

from fedopl.client.answers.handlers import HANDLERS, TARGET_HANDLERS
from fedopl.client.disk.store import FolderStore
from fedopl.messages import codec
from fedopl.messages.refusal import Refusal, RefusalCode

every_study = pytest.mark.parametrize("study", STUDIES)
ORDERS = {"linear": 20}  # in other studies, three


def test_every_kind_of_question_is_heard():
    found = [(door, asked) for study in STUDIES for door, told in heard(study) for asked, _ in told]
    assert {type(read(*one)) for one in found} == {*HANDLERS, *TARGET_HANDLERS}


def differing(door, told, columns, study):
    """The kinds of questions that these rows answer in other bytes."""
    again = opened(door, columns, study)
    return [type(read(door, asked)).__name__ for asked, own in told if again.handle(asked) != own]


@every_study
def test_the_same_rows_in_another_order_have_the_same_answers(study):
    rng = np.random.default_rng(0)
    for door, told in heard(study):
        columns = columns_of(door)
        for _ in range(ORDERS.get(study, 3)):
            order = rng.permutation(len(columns["rewards"]))
            moved = {name: column[order] for name, column in columns.items()}
            assert not differing(door, told, moved, study)


@every_study
def test_what_1_to_4_rows_have_does_not_show_in_any_answer(study):
    """The flag is 1 in three rows: in others, or in one, two, four or none, all is the same."""
    for door, told in heard(study):
        columns = columns_of(door)
        for ones in ([7, 60, 200], [5], [10, 11], [20, 30, 40, 50], []):
            contexts = columns["contexts"].copy()
            contexts[:, FLAG] = np.isin(np.arange(len(contexts)), ones)
            assert not differing(door, told, columns | {"contexts": contexts}, study)
        contexts[:5, FLAG] = 1.0
        assert differing(door, told, columns | {"contexts": contexts}, study)


def others(query):
    """The same question in other bytes: as another exchange, and with other numbers."""
    yield from (replace(query, exchange=1000 + more) for more in range(40))
    for name, numbers in query.named_arrays():
        if numbers.size and not (numbers % 1 == 0).all():
            yield replace(query, **{name: numbers * (1 + 1e-3)})


LASTING = ("screened", "steps", "tree")


@pytest.mark.parametrize(
    ("study", "is_lasting"), [*((own, False) for own in STUDIES), *((own, True) for own in LASTING)]
)
def test_every_question_is_answered_once_and_the_same_bytes_the_same(study, is_lasting, tmp_path):
    for door, told in heard(study):
        store = FolderStore(tmp_path / door.name) if is_lasting else None
        again, answered = opened(door, columns_of(door), study, store=store), Counter()
        first = {}  # of each kind
        for asked, own in told:
            assert again.handle(asked) == own
            kind = asked_about(door, asked), type(read(door, asked))
            answered[kind] += 1
            first.setdefault(kind, read(door, asked))
        for kind, query in first.items():
            for other in others(query):
                answer = read(door, again.handle(codec.encode(other)))
                if not isinstance(answer, Refusal):
                    answered[kind] += 1
                elif answer.reason is not RefusalCode.MALFORMED:
                    assert answer.reason is RefusalCode.ASKED_ALREADY
        assert all(again.handle(asked) == own for asked, own in told)
        assert all(n <= kind.most(own) for (own, kind), n in answered.items())
