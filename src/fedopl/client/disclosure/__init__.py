"""Disclosure control: what a client may release, and the ledger of what it released."""
