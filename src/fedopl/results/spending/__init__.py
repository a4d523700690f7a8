"""What a policy gains within a budget, and how that is said."""
