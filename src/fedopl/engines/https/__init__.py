"""Plain HTTPS as transport: clients that dial out, and the server that they ask."""
