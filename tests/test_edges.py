"""What is said at the edges is true: the situations of `experiments/edges.py`, one by one."""

import edges
import pytest

# What has to be in the words that a person reads, and what may not.
SAID = {
    "one held-out group": ("No recommendation", "Use the learned policy"),
    "no effect anywhere": ("Keep to what was done so far", "Use"),
    "rare arms": ("Keep to what was done so far", "Give everybody"),
    "a well personalised past": ("Use the learned policy", "Give everybody"),
    "impossible known propensities": ("not that of treatment", "None"),
    "34 actions, default limits": ("Keep to what was done so far", "Give everybody"),
    "one client, local models, clip": ("gain over its own local policy: 0", "."),
    "identical clients": ("surely leave: nobody", "surely not"),
    "models too simple for outcomes and logging": ("too simple", "Give everybody"),
    "outcome models that bend, logging that is not explained": (
        "No recommendation: propensities do not explain what was done",
        "Give everybody",
    ),
    "an action that hardly anybody got": ("[", "Give everybody 'rare'"),
}


@pytest.mark.parametrize("situation", SAID)
def test_what_is_said_is_true(situation):
    said = edges.SITUATIONS[situation]().said
    wanted, unwanted = SAID[situation]
    assert wanted in said
    assert unwanted not in said.partition("[")[0]


def test_cross_fitted_values_hang_less_on_the_seed():
    said = edges.few_rows_and_seeds().said
    held_out, crossed = (float(part.split()[-1]) for part in said.split(" (")[:2])
    assert crossed < held_out / 3


def test_medians_over_splits_hang_less_on_the_seed(monkeypatch):
    monkeypatch.setattr(edges, "SEEDS", range(4))
    said = edges.few_rows_and_splits().said
    alone, together = (float(part.split()[0]) for part in said.split(" by ")[1:3])
    assert together < 0.8 * alone


def test_intervals_under_splits_cover(monkeypatch):
    monkeypatch.setattr(edges, "N_COVERED", 3)
    said = edges.coverage_under_splits().said
    assert [part.split()[-1] for part in said.split(": ")[1].split(", ")] == ["100%", "100%"]


def test_all_situations_are_tried():
    by_numbers = {
        "5 clients of 150 rows, 8 seeds",
        "5 clients of 150 rows, 8 seeds, 5 splits",
        "3 clients of 120 rows, coverage under 5 splits",
    }
    assert set(SAID) | by_numbers <= set(edges.SITUATIONS)


def test_a_situation_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit, match="no situation 'none'; there are one held-out group"):
        edges.main(["none"])
