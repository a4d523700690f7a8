"""The messages that may cross between client and server: a closed list, and their bytes."""
