"""What transports over a network share: certificates, doors, and the server's side of a run."""
