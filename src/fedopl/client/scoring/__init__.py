"""Algorithm 3: cross-fitted nuisances, doubly robust scores, and what they show."""
