"""Messages about how clients differ."""
