"""What a client computes from its own scores: means, steps, cells, its own policy."""
