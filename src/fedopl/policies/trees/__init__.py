"""Trees on a public grid: the plan, the grid, the search, and growing deeper."""
