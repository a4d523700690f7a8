"""Vowpal Wabbit's passes over ready scores: what `sgd.py` runs in its environment.

    python benchmarks/vowpal_passes.py --measure WAY FOLDER PASSES

WAY is "python", "file" or "command", and "default" or "sgd". The clock runs while it learns.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from peer_methods import (
    VOWPAL_DEFAULT,
    as_text,
    numpy_scores,
    vowpal_decisions,
    vowpal_flags,
    write_text,
)
from problem import Rows


def learned(how: str, flags: str, lines: list[str], passes: int) -> tuple[float, object]:
    """Seconds, and how to decide."""
    from vowpalwabbit import Workspace

    if how == "python":
        workspace = Workspace(flags)
        start = time.perf_counter()
        for _ in range(passes):
            for line in lines:
                workspace.learn(line)
        return time.perf_counter() - start, lambda x: vowpal_decisions(workspace, x)
    place = Path(tempfile.mkdtemp())
    (place / "rows.vw").write_text("\n".join(lines) + "\n")
    cached = f" --passes {passes} --holdout_off --cache_file {place}/cache" if passes > 1 else ""
    command = f"{flags} -d {place}/rows.vw{cached}"
    start = time.perf_counter()
    if how == "file":
        workspace = Workspace(command)
        return time.perf_counter() - start, lambda x: vowpal_decisions(workspace, x)
    program = str(shutil.which("vw"))
    subprocess.run([program, *command.split(), "-f", f"{place}/model"], check=True)
    return time.perf_counter() - start, lambda x: by_command(program, place, x)


def by_command(program: str, place: Path, contexts: np.ndarray) -> np.ndarray:
    """Decisions of a model that the program wrote."""
    write_text(place / "test.vw", contexts)
    told = f"--quiet -t -i {place}/model -d {place}/test.vw -p {place}/decided"
    subprocess.run([program, *told.split()], check=True)
    return np.loadtxt(place / "decided").astype(int) - 1


def measure(way: str, folder: Path, passes: int) -> dict[str, float]:
    """Seconds of learning, and of making the text; decisions are left in the folder."""
    rows = Rows.load(folder)
    how, which = way.split()
    scores = numpy_scores(rows)
    start = time.perf_counter()
    lines = list(as_text(rows.contexts, scores))
    text = time.perf_counter() - start
    flags = VOWPAL_DEFAULT if which == "default" else vowpal_flags(len(lines))
    seconds, decide = learned(how, flags, lines, passes)
    np.save(folder / "decisions.npy", decide(np.load(folder / "test.npy")))
    return {"seconds": seconds, "text": text}


def main() -> None:
    """Once on few rows, then on all."""
    _, way, folder, passes = sys.argv[1:]
    measure(way, Path(folder, "few"), 1)
    print(json.dumps(measure(way, Path(folder), int(passes))))


if __name__ == "__main__":
    main()
