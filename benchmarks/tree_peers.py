"""Other people's policy-tree searches on ready scores: econml, pystreed, policytree.

Every function takes contexts (n_rows, n_features) and scores (n_rows, n_actions) and returns a
`Fitted`, or raises AbsentError. A peer runs in a process of its own, in its own environment, on one
thread; rows go there and decisions come back in files. CPU seconds are taken around the fit alone:
no start, no import, no file, no prediction.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from harness import HERE, ONE_THREAD, AbsentError, peer_python
from process import ABSENT


class Fitted(NamedTuple):
    """What a search decided for the rows it was given, and what it cost."""

    decisions: np.ndarray  # (n_rows,)
    seconds: float  # CPU seconds of the fit, all threads


def econml_tree(contexts, scores, depth: int = 2) -> Fitted:
    """Grow a tree greedily by econml.policy.PolicyTree, every observed midpoint allowed."""
    return _in_python("econml", contexts, scores, depth=depth)


def streed_tree(contexts, scores, bins: int, depth: int = 2) -> Fitted:
    """Find the best tree on bins - 1 quantile thresholds per feature, by pystreed."""
    return _in_python("pystreed", contexts, scores, depth=depth, bins=bins)


def policytree(contexts, scores, depth: int = 2, step: int = 1, asked=None) -> Fitted:
    """Find the best tree on observed thresholds, by policytree in R.

    Every one of a column's is tried, or every so many (its `split.step`). Decisions are for the
    rows that were searched, or for other contexts if they are given.
    """
    if shutil.which("Rscript") is None:
        raise AbsentError("absent: no R")
    with tempfile.TemporaryDirectory() as folder:
        asked = contexts if asked is None else asked
        for name, table in {"contexts": contexts, "scores": scores, "asked": asked}.items():
            # R stores matrices by column.
            np.asarray(table, dtype="<f8").T.tofile(Path(folder, name))
        shape = [*contexts.shape, scores.shape[1], depth, len(asked), step]
        return _fitted(["Rscript", "-e", POLICYTREE, folder, *map(str, shape)], folder)


POLICYTREE = f"""
if (!requireNamespace("policytree", quietly = TRUE)) quit(status = {ABSENT})
arguments <- commandArgs(trailingOnly = TRUE)
within <- function(name) file.path(arguments[1], name)
size <- as.integer(arguments[-1])
table <- function(name, rows, columns) matrix(
  readBin(within(name), "double", rows * columns, endian = "little"), rows)
contexts <- table("contexts", size[1], size[2])
scores <- table("scores", size[1], size[3])
asked <- table("asked", size[5], size[2])
spent <- system.time(
  tree <- policytree::policy_tree(contexts, scores, depth = size[4], split.step = size[6]))
decisions <- as.integer(predict(tree, asked)) - 1L
writeBin(decisions, within("decisions"), size = 4, endian = "little")
cat(sprintf("%.17g", spent[["user.self"]] + spent[["sys.self"]]))
"""


def _in_python(peer: str, contexts, scores, **options: int) -> Fitted:
    python = str(peer_python(peer))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "rows.npz"), contexts=contexts, scores=scores)
        return _fitted(
            [python, str(HERE / "tree_fits.py"), peer, folder, json.dumps(options)], folder
        )


def _fitted(command: list[str], folder: str) -> Fitted:
    done = subprocess.run(
        command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=False
    )
    if done.returncode == ABSENT:
        raise AbsentError("absent: not installed")
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    decisions = np.fromfile(Path(folder, "decisions"), dtype="<i4")
    return Fitted(decisions, float(done.stdout.splitlines()[-1]))
