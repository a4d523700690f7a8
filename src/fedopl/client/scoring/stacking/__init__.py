"""Weighted means of outcome models: everybody's, the client's own, and regressors."""
