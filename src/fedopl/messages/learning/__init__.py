"""Messages that a policy is learned from."""
