"""Screening: what clients tell before terms are agreed."""
