"""Settings of boosted trees, for actions and for outcomes."""

TREE_OPTIONS = {
    "max_leaf_nodes": 4,
    "min_samples_leaf": 10,
    "l2_regularization": 1.0,
    "early_stopping": False,
    "random_state": 0,
}
# More rounds are tried if the best one is in the last quarter of those tried so far.
ROUNDS = (30, 90, 240)
STILL_IMPROVING = 0.75
# Short steps are better with few rows. With many rows they only take longer.
SHORT_STEP, LONG_STEP, MANY_ROWS_BOOSTED = 0.1, 0.2, 2_000


def step_for(n_rows: int) -> float:
    """The learning rate for this number of rows."""
    return LONG_STEP if n_rows > MANY_ROWS_BOOSTED else SHORT_STEP
