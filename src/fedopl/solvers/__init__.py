"""Policies and outcome models from sums: linear algebra that never sees a row."""
