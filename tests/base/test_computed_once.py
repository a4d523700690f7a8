"""An attribute that is computed when it is first used, and kept."""

from fedopl.base.computed_once import computed_once


class Counting:
    """Counts how often its attribute is computed."""

    times = 0

    @computed_once
    def value(self):
        """What it is."""
        self.times += 1
        return [self.times]


def test_it_is_computed_when_it_is_first_used_and_then_kept():
    one, other = Counting(), Counting()
    assert one.times == 0
    assert one.value is one.value
    assert one.times == 1
    assert other.value is not one.value


def test_another_value_can_take_its_place():
    one = Counting()
    one.value = "given"
    assert one.value == "given"
    assert one.times == 0


def test_a_class_has_its_description():
    assert Counting.value.__doc__ == "What it is."
