"""Answers that a policy is learned from."""
