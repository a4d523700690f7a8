"""Flower as transport: apps, nodes, and a whole federation of processes on one machine."""
