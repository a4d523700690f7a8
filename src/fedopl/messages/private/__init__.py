"""What crosses in a study with differential privacy, always with noise."""
