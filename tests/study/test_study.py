import fedopl

STUDY = fedopl.Study(actions=("a", "b"), features=("x",))


def test_studies_are_the_same_that_say_the_same():
    again = fedopl.Study(actions=("a", "b"), features=("x",))
    assert again == STUDY
    assert hash(again) == hash(STUDY)
    assert fedopl.Study(actions=("a", "b"), features=("x",), seed=1) != STUDY
    assert STUDY != "study"


def test_a_copy_that_says_something_else_has_another_digest():
    digest = STUDY.digest
    copy = STUDY.model_copy(update={"seed": 1})
    assert copy.digest != digest
    assert copy != STUDY
    assert STUDY.model_copy().digest == digest
