"""Oracles turn clients' answers into a policy. Each method has its own file."""
