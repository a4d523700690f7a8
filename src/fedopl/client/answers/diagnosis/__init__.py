"""Answers about how clients differ."""
