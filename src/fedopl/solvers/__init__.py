"""Computes policies and outcome models from sums over rows; no function here sees a row."""
