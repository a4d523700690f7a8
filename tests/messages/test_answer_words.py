"""Owners, previews and reports say of an answer what it holds in its own study."""

import pytest

from fedopl.client.client_file import read_client
from fedopl.client.disclosure.approvals import Approvals
from fedopl.demo.writing import write_demo
from fedopl.engines.folder_doors import door_of
from fedopl.messages import codec
from fedopl.messages.about_masks import TellKeys
from fedopl.messages.answer_words import answer_in_words, arrays_in_words
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.private.noised_sums import SumPrivately
from fedopl.study.study_file import read_study

COUNTS = "how many took each action"


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """The folder of a study with differential privacy, masks and a basis."""
    return write_demo(tmp_path_factory.mktemp("private"), "private-hospitals").parent


@pytest.fixture(scope="module")
def study(private):
    return read_study(private / "study.toml")[0]


def test_counts_by_action_are_named_only_where_they_leave(study):
    assert answer_in_words(Enrol(), study) == (
        "how many rows there are (n rows: one number; clipped: one number)"
    )
    plain = study.model_copy(update={"privacy": None})
    assert COUNTS in answer_in_words(Enrol(), plain)
    assert "rows per action: actions" in answer_in_words(Enrol(), plain)


def test_numbers_are_counted_in_the_terms_of_the_study(study):
    assert all(
        "terms" in of and "features" not in of for of in arrays_in_words(SumPrivately, study)
    )
    linear = study.model_copy(update={"basis": None})
    assert all("features" in of for of in arrays_in_words(SumPrivately, linear))


def test_noise_and_masks_are_named_where_there_are_some(study):
    masked = "It leaves under masks, with noise: only the total over all clients can be read"
    assert answer_in_words(SumPrivately(), study).endswith(masked)
    assert "mask" not in answer_in_words(TellKeys(), study).split("(")[1]
    unmasked = study.privacy.model_copy(update={"aggregation": "plain", "keys": {}})
    each = study.model_copy(update={"privacy": unmasked})
    assert answer_in_words(SumPrivately(), each).endswith("(terms + 1)), with noise")
    plain = study.model_copy(update={"privacy": None})
    assert "noise" not in answer_in_words(SumOutcomes(), plain)


def test_the_owner_reads_the_words_of_the_study(private, study, tmp_path):
    client = read_client(private / "clients" / "island")
    door = door_of(study, client, client.rows_for(study))
    door.approvals = Approvals(folder=tmp_path / "approvals", asks=True)
    for query in (Enrol(study=study.digest), SumPrivately(study=study.digest, exchange=1)):
        question = door._question(codec.encode(query))
        assert question.holds == answer_in_words(query, study)
