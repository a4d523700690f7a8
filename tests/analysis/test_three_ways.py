"""Shared, personal or alone: the best by estimates, and only where intervals leave no other."""

from types import SimpleNamespace

import pytest

from fedopl.analysis.advice import ThreeWays, three_ways
from fedopl.base.estimates import Estimate
from fedopl.report.joining.advising import ways_in_short
from fedopl.results.value_tables import LOCAL, GainTable, PersonalTable, Row


def gain(value, error=0.1):
    return Estimate(value=value, standard_error=error, n_rows=500, degrees_of_freedom=499)


def ways(personal, shared, alone, error=0.1, **more):
    """By what each of the three is worth."""
    return ThreeWays(
        client="north",
        personal_over_shared=gain(personal - shared, error),
        personal_over_alone=gain(personal - alone, error),
        shared_over_alone=gain(shared - alone, error),
        **more,
    )


@pytest.mark.parametrize(
    ("worth", "best", "as_good"),
    [
        ((3, 1, 1), "personal", ()),
        ((1, 3, 1), "shared", ()),
        ((1, 1, 3), "alone", ()),
        ((3, 1, 2.9), "personal", ("alone",)),
        ((2.9, 1, 3), "alone", ("personal",)),
        ((2.95, 3, 0), "shared", ("personal",)),
        ((1, 1, 1), "shared", ("personal", "alone")),
    ],
)
def test_the_best_is_sure_only_over_what_its_intervals_exclude(worth, best, as_good):
    found = ways(*worth)
    assert (found.best, found.as_good) == (best, as_good)
    assert found.decision == ("undecided" if as_good else best)


def test_nothing_is_decided_where_models_are_in_doubt():
    assert ways(3, 1, 1, in_doubt=True).decision == "undecided"
    assert not ways(3, 1, 1, in_doubt=True).surely_joins


@pytest.mark.parametrize(
    ("worth", "said"),
    [
        ((2.95, 3, 0), "For north, learning alone is surely not best; the rows cannot "),
        (
            (3, 1, 2.9),
            "For no client can the rows decide which of three policies is best.",
        ),
        ((3, 1, 1), "For north, its personal policy is best."),
    ],
)
def test_that_joining_pays_is_said_where_shared_and_personal_are_alike(worth, said):
    assert ways_in_short([ways(*worth)]).startswith(said)


def test_three_comparisons_need_more_than_one_does():
    """At 95 % alone it would be better: 2.2 standard errors."""
    found = ways(0.22, 0, 0)
    low, _ = found.personal_over_shared.interval()
    assert low > 0
    assert found.decision == "undecided"


def test_only_clients_that_told_all_are_compared_and_none_where_there_is_one():
    personal = PersonalTable(
        tuple(
            Row(against=against, client=client, estimate=gain(1.0))
            for against in ("learned", LOCAL)
            for client in ("global", "north", "south")
        )
    )
    gains = GainTable((Row(against=LOCAL, client="north", estimate=gain(0.0)),))
    mixture = {"north": 0.5, "south": 0.5}
    record = SimpleNamespace(personal=personal, gains=gains, mixture=mixture, valued_as="learned")
    assert list(three_ways(record)) == ["north"]
    record.mixture = {"north": 1.0}
    assert three_ways(record) == {}
