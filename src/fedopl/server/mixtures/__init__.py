"""Mixtures found from data: paths toward one client, and minimax over clients."""
