"""Does joining pay: what the server can tell every client from what all of them told."""
