"""Explains a policy in words: coefficients, leaves, groups and support."""
