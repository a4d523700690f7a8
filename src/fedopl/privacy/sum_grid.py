"""The grid on which sums of rows are exact, and noise is whole."""

from fractions import Fraction

GRID = 1024  # steps of a unit
# Of a product of two numbers on the grid; all sums are whole numbers of these steps.
FINE = float(GRID**2)
FINE_STEP = Fraction(1, GRID**2)
