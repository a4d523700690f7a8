"""The fits of econml and pystreed: what `tree_peers.py` runs in their environments.

python benchmarks/tree_fits.py PEER FOLDER OPTIONS
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from process import ABSENT


def _fit_econml(contexts, scores, depth: int):
    from econml.policy import PolicyTree

    # A tolerance of .5 is what lets a split be as unbalanced as it likes: at least (.5 - tolerance)
    # of the rows go to each side. (econml's docstring says 0, which forces halves.)
    tree = PolicyTree(
        max_depth=depth,
        honest=False,
        min_samples_split=2,
        min_samples_leaf=1,
        min_balancedness_tol=0.5,
        random_state=0,
    )
    start = time.process_time()
    tree.fit(contexts, scores)
    return tree, time.process_time() - start


def _fit_streed(contexts, scores, depth: int, bins: int):
    from pystreed import STreeDInstanceCostSensitiveClassifier

    tree = STreeDInstanceCostSensitiveClassifier(
        max_depth=depth, n_thresholds=bins - 1, time_limit=3600
    )
    # Its bounds suppose that no cost is negative; a constant per row changes no tree's rank.
    costs = scores.max(axis=1, keepdims=True) - scores
    start = time.process_time()
    tree.fit(contexts, costs)
    seconds = time.process_time() - start
    if not tree.fit_result.is_optimal():
        raise RuntimeError("pystreed stopped before it had proved its tree the best")
    return tree, seconds


FITS = {"econml": _fit_econml, "pystreed": _fit_streed}


def _main(peer: str, folder: str, options: str) -> None:
    given = np.load(Path(folder, "rows.npz"))
    contexts, scores = given["contexts"], given["scores"]
    try:
        tree, seconds = FITS[peer](contexts, scores, **json.loads(options))
    except ModuleNotFoundError as error:
        if error.name != peer:  # something that the peer lacks itself
            raise
        sys.exit(ABSENT)
    np.asarray(tree.predict(contexts)).ravel().astype("<i4").tofile(Path(folder, "decisions"))
    print(seconds)


if __name__ == "__main__":
    _main(*sys.argv[1:])
