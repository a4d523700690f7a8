"""Trees on a public grid: what may be asked, the grid itself, the search, and growing deeper."""
