"""Clients join or leave finished runs. The policy is solved again from sums without asking others."""
