"""Turns a file or frame into checked rows."""
