"""One file for each message a client answers."""
