"""What a record says without asking anybody: attribution of shifts, modelled gains, advice."""
