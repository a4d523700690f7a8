"""What crosses in a study with differential privacy, always with noise.

Noise is for one answer to one question, so what is not a step of several is asked once.
"""
