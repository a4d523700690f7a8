"""Asking clients: transports, conversations whose answers are checked, and the journal."""
