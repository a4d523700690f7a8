"""A run as files: the run folder, and how each kind of file in it is written and read."""
