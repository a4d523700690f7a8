"""Screening: what clients send before terms are agreed."""
