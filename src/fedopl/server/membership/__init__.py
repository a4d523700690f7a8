"""Finished runs that clients join or leave: solved again from sums; no other client is asked."""
