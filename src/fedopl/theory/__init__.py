"""The formulas of the paper's theory: skewness, shift, complexity, bounds, information."""
