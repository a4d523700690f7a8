"""What crosses where answers are masked, and the server reads their total alone."""
