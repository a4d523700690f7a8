"""Policies: one file per kind, each of which decides, packs, saves and loads itself."""
