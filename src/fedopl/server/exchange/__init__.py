"""Exchanges with clients: transports, conversations with checked answers, and the journal."""
