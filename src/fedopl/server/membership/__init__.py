"""Clients join or leave finished runs. The policy is solved again from sums; no other is asked."""
