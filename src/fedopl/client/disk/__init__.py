"""Rows larger than memory: arrays in files, prefetching, sorting, and the private store."""
