"""What actions cost, and how much may be spent."""
