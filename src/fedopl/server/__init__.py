"""The server: it asks, checks, weighs by the agreed mixture, and never holds a row."""
