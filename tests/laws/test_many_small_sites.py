"""Law: under default limits, sites of 30 rows or more take part; smaller ones are left out."""

import numpy as np
import pytest

import fedopl
from fedopl.cli.run_summary import say_run

N_SITES, N_FEATURES = 79, 8


def site(seed, n_rows, n_actions):
    """Rows with five numbers and three flags, the rarest in a tenth of rows."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    contexts[:, 5:] = rng.random((n_rows, 3)) < [0.5, 0.2, 0.1]
    actions = rng.integers(0, n_actions, n_rows)
    rewards = contexts[:, 0] * (actions - (n_actions - 1) / 2) + rng.standard_normal(n_rows)
    names = [f"arm {code}" for code in range(n_actions)]
    return fedopl.LoggedData(contexts, actions, rewards, action_names=names)


@pytest.mark.parametrize("n_actions", [2, 3, 4])
def test_sites_with_30_rows_are_valued_or_only_learn_and_smaller_ones_are_left_out(
    n_actions, capsys
):
    sizes = np.random.default_rng(n_actions).integers(25, 141, N_SITES)
    clients = {f"{k:02d}": site(k, int(n), n_actions) for k, n in enumerate(sizes)}
    run = fedopl.learn(
        clients,
        basis="linear",
        personal="none",
        nuisances=fedopl.NuisancePlan(propensity="marginal"),
        limits="guarded",
    )
    left_out = {name for name, data in clients.items() if data.n_rows < 30}
    refused = {why: who for why, (who, _) in run.refusals_by_reason.items()}
    only_learn = refused.get("ONLY_LEARNS", set())
    assert refused.pop("TOO_FEW_ROWS") == left_out
    assert {*refused} <= {"ONLY_LEARNS"}
    assert {row.client for row in run.values.rows} - {"global"} == {
        *clients
    } - left_out - only_learn
    taken = [clients[name].rows_per_action for name in only_learn]
    assert all(np.rint(0.25 * counts).max() < 5 for counts in taken)
    assert not run.without_sums  # nine terms, of at least 18 rows to learn from
    say_run(run, None, as_json=False)
    assert sum("TOO_FEW_ROWS" in line for line in capsys.readouterr().out.splitlines()) == 1
    left_out, only_learn, without_sums = map(len, (left_out, only_learn, run.without_sums))
    print(f"{left_out} left out, {only_learn} only learn, {without_sums} without sums of terms")
