"""Trees: their nodes and plan, the public grid of thresholds, and the search on it."""
