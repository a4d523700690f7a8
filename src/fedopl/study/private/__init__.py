"""Differential privacy in a study: what it promises, and what follows from the promise."""
