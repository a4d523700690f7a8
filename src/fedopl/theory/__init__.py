"""The paper's theory as arithmetic: skewness, shift, complexity, bounds, information."""
