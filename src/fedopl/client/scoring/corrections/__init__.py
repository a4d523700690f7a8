"""Scores of held-out rows, corrected by what features do together beyond outcome models."""
