"""Boosted trees as nuisances, where linear models do not fit."""
