"""A client in a study with differential privacy: bounded rows, exact sums, and noise."""
