"""What may cross between client and server: a closed list of messages, and their bytes."""
