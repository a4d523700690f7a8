"""A file or frame becomes checked rows."""
