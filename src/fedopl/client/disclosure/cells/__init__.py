"""Sums over cells and narrow bins of trees: which may be released, and which are merged."""
