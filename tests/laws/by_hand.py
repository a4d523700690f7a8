"""Searches for weights of clients as a plain loop makes them."""

import numpy as np


def ascent(start, policy_for, values, n_steps):
    """The weights of a minimax ascent, by client, and their policy: of all tried, least regretted.

    `start` has the weights to begin with, `policy_for` solves for weights, and `values` are those
    of a policy by client.
    """
    names = list(start)
    own = {name: policy_for({**dict.fromkeys(names, 0.0), name: 1.0}) for name in names}
    most = {name: values(own[name])[name] for name in names}

    def regrets(weights):
        worth = values(policy_for(dict(zip(names, weights, strict=True))))
        return np.array([most[name] - worth[name] for name in names])

    logs, tried, totals, played, spread = np.log([*start.values()]), [], 0.0, 0.0, 0.0
    reach = np.sqrt(-8 * logs.min() / n_steps)
    for step in range(1, n_steps + 1):
        now = np.exp(logs - logs.max())
        now = now / now.sum()
        found = regrets(now)
        tried.append((now, found.max()))
        spread = max(spread, np.ptp(found))
        totals, played = totals + found, played + now @ found
        if (totals.max() - played) / step <= 0.05 * spread:
            break
        logs = logs + found * (reach / spread if spread > 0 else 0.0)
    mean = np.mean([own for own, _ in tried], axis=0)
    tried.insert(0, (mean, regrets(mean).max()))
    chosen = dict(zip(names, min(tried, key=lambda one: one[1])[0], strict=True))
    return chosen, policy_for(chosen)
