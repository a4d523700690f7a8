"""Sums over cells and narrow bins of trees: which are released, and which are merged first."""
