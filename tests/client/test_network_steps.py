"""Steps on a network follow the slope of the loss, and no row pulls further than it may."""

from dataclasses import replace

import numpy as np
import pytest

from fedopl.client.local.network_steps import (
    LONGEST_PULL,
    LOSSES,
    PLAIN_RATE,
    NetworkRows,
    Steps,
    _slopes,
    dealt,
    losses,
    trained,
)
from fedopl.policies.network import Layer, first_network, network_numbers, network_of, passed

WIDTHS = (3, 5, 4, 2)
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def some_rows(n_rows=40, seed=0, *, gaps=True):
    rng = np.random.default_rng(seed)
    known = rng.random((n_rows, 2)) < (0.8 if gaps else 2)
    known[:, 0] |= ~known.any(axis=1)
    scores, linear = rng.normal(size=(2, n_rows, 2))
    return NetworkRows(
        contexts=rng.normal(size=(n_rows, 3)),
        scores=np.where(known, 3 * scores, 0.0),
        linear=np.where(known, linear, 0.0),
        known=known,
        weights=rng.uniform(0.5, 1.5, n_rows),
    )


def some_network(seed=1):
    rng = np.random.default_rng(seed)
    *others, last = first_network(WIDTHS, rng)
    return (*others, Layer(rng.normal(size=last.weights.shape), rng.normal(size=2)))


def steps_with(loss, **changes):
    rng = np.random.default_rng(2)
    usual = {"rate": 0.01, "batches": [np.arange(40)], "noise": 0.0, "rng": rng}
    return Steps(loss=loss, **{**usual, **changes})


@every_loss
def test_the_slope_is_that_of_the_mean_loss(loss):
    rows, numbers = some_rows(), network_numbers(some_network())
    found = network_numbers(_slopes(some_network(), rows, steps_with(loss)))

    def mean_loss(at):
        return losses(network_of(at, WIDTHS), rows, loss).mean()

    for place in range(0, len(numbers), 3):
        step = np.zeros(len(numbers))
        step[place] = 1e-6
        measured = (mean_loss(numbers + step) - mean_loss(numbers - step)) / 2e-6
        assert found[place] == pytest.approx(measured, abs=1e-6)


def test_the_loss_is_measured_from_the_linear_part():
    rows, outputs = some_rows(), np.zeros((40, 2))
    assert not LOSSES["regression"].lessened(rows, outputs).any()
    # The linear part decides; a softmax of it does not do as well as its own decision at best.
    decided = np.where(rows.known, rows.linear, -np.inf).argmax(axis=1)
    sure = np.where(np.eye(2, dtype=bool)[decided], 1e3, 0.0)
    np.testing.assert_allclose(LOSSES["softmax"].lessened(rows, sure), 0.0, atol=1e-12)


@every_loss
def test_with_noise_no_row_moves_a_step_by_more_than_the_longest_pull(loss):
    """Whatever its scores are: here one row's are as far out as can be."""
    rows, moved = some_rows(gaps=False), []
    for far in (-1e8, 1e8):
        scores = rows.scores.copy()
        scores[7] = far, -far
        other = replace(rows, scores=scores)
        moved.append(
            network_numbers(_slopes(some_network(), other, steps_with(loss, noise=1e-300)))
        )
    assert 0 < np.linalg.norm(moved[1] - moved[0]) <= 2 * LONGEST_PULL / 40 * (1 + 1e-9)


@every_loss
def test_with_noise_rows_beyond_numbers_pull_at_nothing(loss):
    """An answer that fails only if somebody is there would tell that."""
    rows = some_rows(gaps=False)
    contexts = rows.contexts.copy()
    contexts[7] = 1e306
    network = tuple(Layer(1e6 * layer.weights, layer.biases) for layer in some_network())
    steps = steps_with(loss, noise=1.0)
    moved = trained(network, replace(rows, contexts=contexts), steps)
    assert np.isfinite(network_numbers(moved)).all()
    assert not np.isnan(losses(network, replace(rows, contexts=contexts), loss)).any()


def test_noise_is_as_large_as_it_says():
    quiet, loud = (
        network_numbers(
            _slopes(some_network(), some_rows(), steps_with(LOSSES["regression"], noise=z))
        )
        for z in (1e-300, 5.0)
    )
    expected = 5.0 * LONGEST_PULL / 40
    assert np.std(loud - quiet) == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize(("n_rows", "n_steps", "n_batches"), [(400, 8, 8), (100, 32, 6), (5, 8, 1)])
def test_in_a_round_every_row_is_in_one_batch(n_rows, n_steps, n_batches):
    batches = dealt(n_rows, n_steps, np.random.default_rng(0))
    assert len(batches) == n_batches
    assert sorted(np.concatenate(batches)) == list(range(n_rows))


def test_steps_lessen_the_loss():
    rows, network = some_rows(400, gaps=False), first_network(WIDTHS, np.random.default_rng(3))
    wanted = np.column_stack([np.abs(rows.contexts[:, 0]), -(rows.contexts[:, 1] ** 2)])
    rows = replace(rows, scores=rows.linear + wanted, weights=None)
    for turn in range(30):
        batches = dealt(400, 8, np.random.default_rng(turn))
        network = trained(network, rows, steps_with(LOSSES["regression"], batches=batches))
    left = wanted - passed(network, rows.contexts)[-1]
    assert (left**2).mean() < 0.1 * (wanted**2).mean()


def with_and_without_a_person(noise, rng):
    """Numbers after a round with a person in the first batch who switches a unit on for others."""
    contexts = np.zeros((80, 1))
    contexts[0] = 1e3
    scores = np.full((80, 1), 1e3)
    network = (Layer(np.array([[1e-3]]), np.array([-1e-6])), Layer(np.array([[3.0]]), np.zeros(1)))
    batches = np.array_split(np.arange(80), 5)
    found = []
    for is_there in (True, False):
        known = np.ones((80, 1), bool)
        contexts[0] = 1e3 if is_there else 0.0
        rows = NetworkRows(
            contexts=contexts.copy(), scores=scores, linear=0 * scores, known=known, weights=None
        )
        steps = Steps(loss=LOSSES["regression"], rate=0.01, batches=batches, noise=noise, rng=rng)
        found.append(network_numbers(trained(network, rows, steps)))
    return found


def test_noise_on_every_step_hides_a_row_that_all_later_steps_would_tell_of():
    """Noise on the result alone would not do: the network may be such that others follow one."""
    rng = np.random.default_rng(4)
    there, away = with_and_without_a_person(1e-300, rng)
    one_row = 0.01 * PLAIN_RATE * LONGEST_PULL / 16
    assert np.linalg.norm(there - away) > 10 * one_row
    pairs = [with_and_without_a_person(2.0, rng) for _ in range(150)]
    sizes = np.array([[np.linalg.norm(one) for one in pair] for pair in pairs])
    assert 0.3 < (sizes[:, :1] > sizes[:, 1]).mean() < 0.7
