"""Messages of a study with differential privacy; answers always have noise.

Noise is for one answer to one question, so a question that is not a step of several is asked once.
"""
