"""The server: it asks clients, checks answers and weights them by the mixture; it holds no rows."""
