"""Other people's policy-tree searches on ready scores: econml, pystreed, policytree.

Every function takes contexts (n_rows, n_features) and scores (n_rows, n_actions) and returns a
`Fitted`, or None where the peer is not installed. A peer runs in a process of its own, by the
interpreter PEERS_PYTHON names (this one if it names none), on one thread; rows go there and
decisions come back in files. CPU seconds are taken around the fit alone: no start, no import, no
file, no prediction.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ABSENT = 3  # exit status of a process whose peer is not installed


class Fitted(NamedTuple):
    """What a search decided for the rows it was given, and what it cost."""

    decisions: np.ndarray  # (n_rows,)
    seconds: float  # CPU seconds of the fit, all threads


def econml_tree(contexts, scores, depth: int = 2) -> Fitted | None:
    """Grow a tree greedily by econml.policy.PolicyTree, every observed midpoint allowed."""
    return _in_python("econml", contexts, scores, depth=depth)


def streed_tree(contexts, scores, bins: int, depth: int = 2) -> Fitted | None:
    """Find the best tree on bins - 1 quantile thresholds per feature, by pystreed."""
    return _in_python("streed", contexts, scores, depth=depth, bins=bins)


def policytree(contexts, scores, depth: int = 2) -> Fitted | None:
    """Find the best tree on every observed threshold, by policytree in R."""
    if shutil.which("Rscript") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, table in {"contexts": contexts, "scores": scores}.items():
            # R stores matrices by column.
            np.asarray(table, dtype="<f8").T.tofile(Path(folder, name))
        shape = [len(contexts), contexts.shape[1], scores.shape[1], depth]
        return _fitted(["Rscript", "-e", POLICYTREE, folder, *map(str, shape)], folder)


POLICYTREE = f"""
if (!requireNamespace("policytree", quietly = TRUE)) quit(status = {ABSENT})
arguments <- commandArgs(trailingOnly = TRUE)
within <- function(name) file.path(arguments[1], name)
size <- as.integer(arguments[-1])
table <- function(name, columns) matrix(
  readBin(within(name), "double", size[1] * columns, endian = "little"), size[1])
contexts <- table("contexts", size[2])
scores <- table("scores", size[3])
spent <- system.time(tree <- policytree::policy_tree(contexts, scores, depth = size[4]))
decisions <- as.integer(predict(tree, contexts)) - 1L
writeBin(decisions, within("decisions"), size = 4, endian = "little")
cat(sprintf("%.17g", spent[["user.self"]] + spent[["sys.self"]]))
"""


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


FITS = {"econml": _fit_econml, "streed": _fit_streed}


def _in_python(peer: str, contexts, scores, **options: int) -> Fitted | None:
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "rows.npz"), contexts=contexts, scores=scores)
        python = os.environ.get("PEERS_PYTHON") or sys.executable
        return _fitted([python, __file__, peer, folder, json.dumps(options)], folder)


def _fitted(command: list[str], folder: str) -> Fitted | None:
    done = subprocess.run(
        command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=False
    )
    if done.returncode == ABSENT:
        return None
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    decisions = np.fromfile(Path(folder, "decisions"), dtype="<i4")
    return Fitted(decisions, float(done.stdout.splitlines()[-1]))


def _main(peer: str, folder: str, options: str) -> None:
    given = np.load(Path(folder, "rows.npz"))
    contexts, scores = given["contexts"], given["scores"]
    try:
        tree, seconds = FITS[peer](contexts, scores, **json.loads(options))
    except ModuleNotFoundError as error:
        if error.name not in ("econml", "pystreed"):  # something that the peer lacks itself
            raise
        sys.exit(ABSENT)
    np.asarray(tree.predict(contexts)).ravel().astype("<i4").tofile(Path(folder, "decisions"))
    print(seconds)


if __name__ == "__main__":
    _main(*sys.argv[1:])
