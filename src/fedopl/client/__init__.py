"""The only room with rows: reading them, scoring them, and later answering for them."""
