"""Scores of valued rows, corrected by what features do together beyond outcome models."""
