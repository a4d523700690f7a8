"""What a study promises where there is differential privacy, and what follows from it."""
