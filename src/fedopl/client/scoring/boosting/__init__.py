"""Boosted trees as nuisances, for what no linear model follows."""
