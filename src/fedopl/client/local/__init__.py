"""What a client computes on its own scores: means, steps, cells, its own policy."""
