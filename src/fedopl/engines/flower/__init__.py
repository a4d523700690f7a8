"""Flower as transport: its apps, its nodes, and a whole federation of processes."""
