"""What `check` does not say: alarms about what is as it should be."""

import numpy as np
import pytest

import fedopl
from tiny_study import NAMES, rows, write_csv, write_tiny


@pytest.fixture
def tiny(tmp_path):
    return write_tiny(tmp_path / "tiny")


def cautions(tiny, name="north"):
    return fedopl.check(tiny.study, tiny.clients).clients[name].cautions


# --- many arms ------------------------------------------------------------------------------------


def lottery(n_arms, n_rows, chances=None):
    rng = np.random.default_rng(0)
    actions = rng.choice(n_arms, n_rows, p=chances)
    names = [str(arm) for arm in range(n_arms)]
    contexts = rng.standard_normal((n_rows, 2))
    return fedopl.LoggedData(contexts, actions, rng.random(n_rows), action_names=names)


def test_an_even_lottery_among_many_arms_raises_no_alarm():
    data = lottery(34, 5000)
    found = fedopl.overlap(data, fedopl.cross_fit(data, propensity="marginal"))
    assert found.cautions == ()
    assert "below 0.0147" in found.table()


def test_an_arm_that_hardly_anybody_got_still_does():
    chances = np.full(34, 0.995 / 33)
    chances[5] = 0.005
    data = lottery(34, 20_000, chances)
    found = fedopl.overlap(data, fedopl.cross_fit(data, propensity="marginal"))
    (caution,) = found.cautions
    assert caution.startswith("'5' had a propensity below 0.0147 in 100% of rows")


def test_among_few_arms_nothing_has_changed():
    data = lottery(3, 3000, [0.03, 0.47, 0.5])
    found = fedopl.overlap(data, fedopl.cross_fit(data, propensity="marginal"))
    assert (found.floor, len(found.cautions)) == (0.05, 1)


# --- units ----------------------------------------------------------------------------------------


def with_column(tiny, **by_client):
    """Severity is replaced by these columns."""
    for turn, name in enumerate(NAMES):
        write_csv(tiny.table(name), {**rows(seed=turn), "severity": by_client[name]})


def test_a_dummy_is_not_asked_for_its_unit(tiny):
    rare, usual = ["0"] * 150 + ["1"] * 10, ["1"] * 150 + ["0"] * 10
    with_column(tiny, north=rare, south=usual, west=rare)
    assert fedopl.check(tiny.study, tiny.clients).differences == ()


def test_a_share_in_per_cent_is(tiny):
    shares = np.random.default_rng(0).random(160)
    with_column(tiny, north=list(shares), south=list(100 * shares), west=list(shares))
    (told,) = fedopl.check(tiny.study, tiny.clients).differences
    assert "'severity'" in told
    assert "is it in the same unit?" in told


# --- rows that repeat -----------------------------------------------------------------------------


def coarse(n_rows, seed=0):
    """Rows of whole numbers and labels, of which many agree by chance."""
    rng = np.random.default_rng(seed)
    return {
        "age": rng.integers(4, 9, n_rows) * 10,
        "severity": rng.integers(0, 3, n_rows),
        "living": rng.choice(["alone", "with others"], n_rows),
        "arm": rng.choice(["usual", "new"], n_rows),
        "gain": rng.integers(0, 2, n_rows),
    }


@pytest.mark.parametrize("n_rows", [160, 2000])
def test_rows_of_coarse_columns_may_repeat(tiny, n_rows):
    for turn, name in enumerate(NAMES):
        write_csv(tiny.table(name), coarse(n_rows, turn))
    assert not any("repeat" in caution for caution in cautions(tiny))


def test_columns_that_follow_from_each_other_may_repeat(tiny):
    for turn, name in enumerate(NAMES):
        own = coarse(800, turn)
        ages = np.random.default_rng(turn).integers(20, 80, 800)
        own |= {"age": ages, "severity": ages // 5, "gain": 1 * (ages > 50)}
        write_csv(tiny.table(name), own)
    assert not any("repeat" in caution for caution in cautions(tiny))


def test_a_join_that_doubled_rows_is_noticed(tiny):
    doubled = {name: [*cells, *cells] for name, cells in rows().items()}
    write_csv(tiny.table(), doubled)
    assert "160 rows repeat another row exactly; check for duplicates" in cautions(tiny)
    one = {name: [*cells, cells[0]] for name, cells in rows().items()}
    write_csv(tiny.table(), one)
    assert "1 row repeats another row exactly; check for duplicates" in cautions(tiny)


def test_doubled_rows_are_noticed_where_outcomes_are_yes_or_no(tiny):
    own = rows() | {"gain": ["1", "0"] * 80}
    write_csv(tiny.table(), {name: [*cells, *cells] for name, cells in own.items()})
    assert "160 rows repeat another row exactly; check for duplicates" in cautions(tiny)


def test_a_handful_among_thousands_of_rows_changes_nothing(tiny):
    many = rows(4000)
    write_csv(tiny.table(), {name: [*cells, *cells[:3]] for name, cells in many.items()})
    assert not any("repeat" in caution for caution in cautions(tiny))
    write_csv(tiny.table(), {name: [*cells, *cells[:9]] for name, cells in many.items()})
    assert "9 rows repeat another row exactly; check for duplicates" in cautions(tiny)


# --- nothing missing ------------------------------------------------------------------------------


def test_that_nothing_is_missing_is_no_alarm(tiny):
    tiny.add('[rows]\nmissing = "indicator"\n')
    tiny.change(severity=[""] * 30 + rows()["severity"][30:])
    said = cautions(tiny)
    assert not any("is missing' is 0 in every row" in caution for caution in said)
    tiny.change(severity=[""] * 160)
    assert "feature 'severity is missing' is 1 in every row" in cautions(tiny)
