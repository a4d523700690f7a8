"""Messages about what policies are worth and how they decide."""
