"""Law: bins with one to four rows are merged with a neighbour, and nothing is lost."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedopl.client.disclosure.held_values import merged_bins

COUNTS = st.lists(st.one_of(st.integers(0, 6), st.integers(0, 50)), min_size=1, max_size=40)


@given(COUNTS, st.integers(0, 9))
def test_every_merged_bin_has_none_or_enough_rows_in_order(counts, minimum):
    counts = np.array(counts)
    onto = merged_bins(counts, minimum)
    merged = np.bincount(onto, counts, len(counts))
    assert merged.sum() == counts.sum()
    if counts.sum() >= minimum:
        assert ((merged == 0) | (merged >= minimum)).all()
    else:
        assert (merged > 0).sum() <= 1
    assert (np.diff(onto) >= 0).all()  # no bin is merged past another
    if not ((counts > 0) & (counts < minimum)).any():
        assert onto.tolist() == [*range(len(counts))]
