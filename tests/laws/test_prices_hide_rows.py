"""A lying server chooses policy and prices so that one held-out row alone decides anew between two.

What it gains or costs is then the difference of the means at these prices, times the rows.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.evaluation.price_curve import N_PRICES, ValuePrices
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal

PRICES = np.linspace(0, 1, N_PRICES)
BUDGET = {"budget": fedopl.Budget(shares={"pill": 0.2}), "evaluation": 0.5}


def _server(data, limits=None):
    return LyingServer(data, study_with(**BUDGET), limits=limits).score()


def _switching_at(person, direction, place):
    """A policy that gives everybody the pill at all prices or none, but the person up to a price.

    Its index is steep along a direction, and the person's alone lies between two prices.
    """
    between = (PRICES[place] + PRICES[place + 1]) / 2
    parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
    parameters[2, -1] = -1e9
    steep = 1e4 * direction
    parameters[1] = [*steep, between - steep @ person]
    return parameters


def _found(server, person, rng):
    """Γ(pill) − Γ(none) of the person, from all prices below against all above; its place, too."""
    place = N_PRICES // 2
    direction = rng.standard_normal(N_FEATURES)
    parameters = _switching_at(person, direction, place)
    told = server.ask(ValuePrices, prices=PRICES, against=0, parameters=parameters)
    assert not isinstance(told, Refusal)
    below, above = slice(0, place + 1), slice(place + 1, N_PRICES)
    apart = told.means[below].mean(axis=0) - told.means[above].mean(axis=0)
    return told.n_rows * apart


def _attacked(limits, n_people=25):
    """What was found of people, each in a study of its own, and what is true."""
    data = rows(600)
    found, true = [], []
    for seed in range(n_people):
        server = _server(data, limits)
        space = server.door._space
        chunk = space.whole
        held_out = chunk.rows(RowSplit.EVALUATION)
        place = held_out.start + seed
        scores = chunk.scores[place]
        rng = np.random.default_rng(seed)
        found.append(_found(server, chunk.data.contexts[place], rng))
        true.append(scores[1] - scores[0])
    return np.array(found), np.array(true)


def test_without_limits_one_row_comes_out_to_all_digits():
    """So the attack is one."""
    found, true = _attacked(Limits(value_noise=0.0, minimum_cell=0), n_people=5)
    np.testing.assert_allclose(found[:, 0], true, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[:, 1], 1.0, atol=1e-6)


def test_with_default_limits_differences_of_prices_tell_next_to_nothing_of_a_row():
    found, true = _attacked(None)
    told = np.corrcoef(found[:, 0], true)[0, 1] ** 2
    print(f"r² with the effect: {told:.2f}; of one person {found[:, 1].mean():.2f} is seen")
    assert told < 0.3
    # Nor is it told that one person more gets the pill at the lower prices.
    assert abs(found[:, 1].mean()) < 0.3


def test_noise_alone_would_be_averaged_out_over_prices():
    """So that prices at which hardly a row decides otherwise are told as one is needed, too."""
    found, true = _attacked(Limits(minimum_cell=0))
    assert np.corrcoef(found[:, 0], true)[0, 1] ** 2 > 0.5


def test_a_second_path_of_prices_is_not_answered():
    server = _server(rows(600))
    parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
    first = server.ask(ValuePrices, prices=PRICES, against=0, parameters=parameters)
    assert not isinstance(first, Refusal)
    second = server.ask(ValuePrices, prices=PRICES * (1 + 1e-9), against=0, parameters=parameters)
    assert second.reason.name == "BUDGET_SPENT"
    spent = [entry.amount for entry in server.door.ledger.entries()]
    assert spent[1] == N_PRICES + len(ACTIONS)


@pytest.mark.parametrize(
    "fields",
    [
        {"prices": np.zeros(N_PRICES)},
        {"prices": PRICES[::-1]},
        {"prices": PRICES + 1},
        {"prices": 1e16 * PRICES},
        {"prices": np.nan * PRICES},
        {"prices": PRICES[:-1]},
        {"against": 3},
        {"against": -1},
    ],
)
def test_prices_that_no_honest_server_has_are_malformed(fields):
    parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
    asked = {"prices": PRICES, "against": 0, "parameters": parameters, **fields}
    assert _server(rows(600)).ask(ValuePrices, **asked).reason.name == "MALFORMED"


def test_only_a_study_with_a_budget_is_told_of_prices():
    server = LyingServer(rows(600)).score()
    parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
    told = server.ask(ValuePrices, prices=PRICES, against=0, parameters=parameters)
    assert told.reason.name == "NOT_IN_STUDY"


def test_few_held_out_rows_are_not_told_of():
    server = _server(rows(200))  # 100 of them, of which so many numbers could be solved
    parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
    told = server.ask(ValuePrices, prices=PRICES, against=0, parameters=parameters)
    assert told.reason.name in ("TOO_MANY_PARAMETERS", "WITHHELD")
