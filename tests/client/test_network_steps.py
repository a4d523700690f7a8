"""Steps on a network follow the slope of the loss."""

from dataclasses import replace

import numpy as np
import pytest

from fedopl.client.local.network_steps import (
    LOSSES,
    NetworkRows,
    Steps,
    _slopes,
    dealt,
    losses,
    trained,
)
from fedopl.policies.neural import Layer, first_network, network_numbers, network_of, passed

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
    return Steps(loss=loss, **{"rate": 0.01, "batches": [np.arange(40)], **changes})


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
