"""One study's view of the rows: folds, order, chunks, and sums by fold."""
