"""How the report spells names, numbers and messages."""
