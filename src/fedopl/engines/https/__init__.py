"""Plain HTTPS as transport: clients connect to the server and ask it for questions."""
