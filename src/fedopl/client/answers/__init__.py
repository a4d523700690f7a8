"""One file for each message that a client answers."""
