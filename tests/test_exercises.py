"""The two exercises, "How to add a policy" and "How to add a message", followed to the letter.

Each page's steps are applied to a copy of the sources, and then its last program is run with that
copy. A step is a paragraph that ends in one of the sentences of `STEPS`, and the code block below
it. Every other code block of the page must be the program below "Try it:" or, with `text`, what it
prints.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
EXERCISES = [ROOT / "docs" / f"how-to-add-a-{what}.md" for what in ("message", "policy")]
MOST_FILES = 5
STEPS = {
    "new": r"`(?P<path>src/[^`]+)`, a new file:",
    "after": r"In `(?P<path>src/[^`]+)`, after (?:the (?P<which>first|last) )?`(?P<line>[^`]+)`:",
    "before": r"In `(?P<path>src/[^`]+)`, before `(?P<line>[^`]+)`:",
    "instead": r"In `(?P<path>src/[^`]+)`, in place of `(?P<line>[^`]+)`:",
    "try": r"Try it:",
    "prints": r"It prints:",
}
NUMBERS = ("no", "one", "two", "three", "four", "five")


class Step(NamedTuple):
    """What to do with a code block."""

    action: str
    path: str
    line: str
    which: str  # of several such lines, the first or the last
    code: str


def steps_of(page):
    """Every code block of a page with the sentence that says what it is for."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"([^\n]*(?:\n[^\n]+)*)\n\n```\w*\n(.*?)^```$", text, re.M | re.S):
        sentence = " ".join(found[1].split())
        for action, pattern in STEPS.items():
            if match := re.search(f"(?:^|[.:;] ){pattern}$", sentence):
                parts = match.groupdict()
                path, line = parts.get("path", ""), parts.get("line", "")
                yield Step(action, path, line, parts.get("which") or "", found[2])
                break
        else:
            raise AssertionError(f"{page.name}: nobody says what to do with\n{found[2]}")


def apply(step, folder):
    """Do what a step says, in this copy of the project."""
    path = folder / step.path
    if step.action == "new":
        assert not path.exists(), f"{step.path} is there already"
        path.write_text(step.code, encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.strip() == step.line]
    assert len(places) == 1 or (places and step.which), (
        f"{step.path} has {len(places)} lines {step.line!r}"
    )
    place = places[-1 if step.which == "last" else 0]
    start = place + (step.action == "after")
    lines[start : start + (step.action == "instead")] = [step.code]
    path.write_text("".join(lines), encoding="utf-8")


def printed_by(program, folder):
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src"), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def parted(text):
    """The words of a text, and its numbers, which other versions of libraries change a little."""
    parts = re.split(r"(\d+\.?\d*)", text)
    return " ".join(" ".join(parts[::2]).split()), [float(part) for part in parts[1::2]]


@pytest.mark.parametrize("page", EXERCISES, ids=lambda page: page.stem)
def test_the_exercise_works_as_it_is_written(page, tmp_path):
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    steps = list(steps_of(page))
    (program,) = (step.code for step in steps if step.action == "try")
    (shown,) = (step.code for step in steps if step.action == "prints")
    for step in steps:
        if step.path:
            apply(step, tmp_path)
    words, numbers = parted(printed_by(program, tmp_path))
    assert (words, numbers) == (parted(shown)[0], pytest.approx(parted(shown)[1], rel=0.1))
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    if ruff:
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        for check in (["check"], ["format", "--check"]):
            found = subprocess.run([ruff, *check, "src"], cwd=tmp_path, capture_output=True)
            assert found.returncode == 0, found.stdout.decode()


@pytest.mark.parametrize("page", EXERCISES, ids=lambda page: page.stem)
def test_the_exercise_touches_as_few_files_as_it_says(page):
    files = {step.path for step in steps_of(page) if step.path}
    assert len(files) <= MOST_FILES
    assert f"touches {NUMBERS[len(files)]} files" in " ".join(page.read_text().split())
