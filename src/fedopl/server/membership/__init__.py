"""Finished runs that clients join or leave: solved again from sums, with nobody else asked."""
