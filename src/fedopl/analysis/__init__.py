"""Analyses of a finished run's record: attribution of shifts, modelled gains, advice."""
