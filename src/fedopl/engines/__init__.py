"""Engines: what carries bytes between server and clients."""
