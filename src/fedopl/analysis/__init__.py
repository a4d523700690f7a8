"""What follows from a record alone: attribution of shifts, modelled gains, advice."""
