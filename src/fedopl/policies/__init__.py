"""Policies: contexts in, actions out; parameters in, parameters out; saved as readable JSON."""
