"""Outcome models that are weighed against each other: everybody's, own ones, and regressors."""
