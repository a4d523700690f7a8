"""Algorithm 3 by the book: refit every model in every fold, on the rows themselves."""

import numpy as np

from fedopl.solvers.least_squares import LARGEST_SHARE_OF_FREEDOM, PENALTIES, TIE_TOLERANCE


def refit(data, folds, fit, columns=None):
    """Outcome means by one fresh fit for every fold and action."""
    means = np.full((data.n_rows, data.n_actions), np.nan)
    for fold in np.unique(folds):
        own = folds == fold
        for action in range(data.n_actions):
            rows = ~own & (data.actions == action)
            if rows.any():
                own_columns = slice(None) if columns is None else columns[action]
                weights = np.ones(rows.sum()) if data.weights is None else data.weights[rows]
                predict = fit(data.contexts[rows][:, own_columns], data.rewards[rows], weights)
                means[own, action] = predict(data.contexts[own][:, own_columns])
    return means


def ols(contexts, rewards, weights):
    _, _, solve, finish = _standardised(contexts, rewards, weights)
    return finish(solve(0.0))


def ridge(contexts, rewards, weights):
    design, target, solve, finish = _standardised(contexts, rewards, weights)
    errors = [gcv(design, target, solve(p), p, weights) for p in PENALTIES]
    equal = min(errors) * (1 + TIE_TOLERANCE)
    best = max(p for p, error in zip(PENALTIES, errors, strict=True) if error <= equal)
    return finish(solve(best))


def gcv(design, target, coefficients, penalty, weights):
    rss, freedom, rows = gcv_parts(design, target, coefficients, penalty, weights)
    if freedom > LARGEST_SHARE_OF_FREEDOM * rows and penalty < PENALTIES[-1]:
        return np.inf
    return rss / (1 - freedom / rows) ** 2


def gcv_parts(design, target, coefficients, penalty, weights):
    rss = np.sum((target - design @ coefficients) ** 2)
    strength = penalty * weights.sum()
    hat = design @ np.linalg.solve(design.T @ design + strength * np.eye(design.shape[1]), design.T)
    return rss, 1 + np.trace(hat), weights.sum() ** 2 / (weights**2).sum()


def _standardised(contexts, rewards, weights):
    means = np.average(contexts, axis=0, weights=weights)
    scales = np.sqrt(np.average((contexts - means) ** 2, axis=0, weights=weights))
    reward_mean = np.average(rewards, weights=weights)
    root = np.sqrt(weights)
    design = root[:, None] * (contexts - means) / scales
    target = root * (rewards - reward_mean)

    def solve(penalty):
        if penalty == 0:
            return np.linalg.lstsq(design, target, rcond=1e-9)[0]
        padding = np.sqrt(penalty * weights.sum()) * np.eye(design.shape[1])
        stacked = np.vstack([design, padding]), np.append(target, np.zeros(len(padding)))
        return np.linalg.lstsq(*stacked, rcond=None)[0]

    def finish(coefficients):
        return lambda new: reward_mean + (new - means) / scales @ coefficients

    return design, target, solve, finish
