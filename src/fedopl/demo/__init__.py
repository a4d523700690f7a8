"""Complete examples: a study, clients in folders, and data to learn from."""
