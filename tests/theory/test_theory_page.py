"""docs/theory-to-code.md names files, functions and tests that are there."""

import ast
import functools
import re
from pathlib import Path

import fedopl

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory-to-code.md").read_text(encoding="utf-8")
PLACE = re.compile(r"(?P<path>[\w/]+\.py)(?:: (?P<name>[\w.]+))?")
PUBLIC = re.compile(r"(?:fedopl\.)?(?P<name>[A-Za-z_]+)\b.*")
# What a run is called throughout, and a command.
ELSEWHERE = ("run.", "fedopl reproduce", "src/fedopl/")


def path_of(place):
    outside = place.startswith(("tests/", "experiments/"))
    return ROOT / place if outside else ROOT / "src" / "fedopl" / place


@functools.cache
def names_in(path):
    """Everything a file defines, methods and fields with their class."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= {(node.name if hasattr(node, "name") else None), *_assigned(node)}
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                inside = {getattr(part, "name", None), *_assigned(part)}
                found |= {f"{node.name}.{name}" for name in inside}
    return found


def _assigned(node):
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def spans():
    """Every `span` of the tables, with the file that was named before it in its cell."""
    for line in PAGE.splitlines():
        cells = re.split(r"(?<!\\)\|", line) if line.startswith("|") else [line]
        for cell in cells:
            before = None
            for span in re.findall(r"`([^`]+)`", cell):
                yield span, before
                place = PLACE.fullmatch(span)
                before = place["path"] if place else before


def fault_in(span, before):
    place = PLACE.fullmatch(span)
    if place:
        path = path_of(place["path"])
        if not path.is_file():
            return "no such file"
        missing = place["name"] and place["name"] not in names_in(path)
        return "no such name" if missing else None
    if before and path_of(before).is_file() and span in names_in(path_of(before)):
        return None
    public = PUBLIC.fullmatch(span)
    if (public and public["name"] in fedopl.__all__) or span.startswith(ELSEWHERE):
        return None
    return f"neither public nor in {before}"


def test_every_name_in_the_page_is_there():
    faults = {span: fault_in(span, before) for span, before in spans()}
    assert {span: fault for span, fault in faults.items() if fault} == {}


def test_every_numbered_statement_of_the_paper_has_a_row():
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    numbers = ["3.1", "3.2", "3.3a", "3.3b", "3.3c", "3.4", "4.1", "4.2"]
    numbers += [f"5.{n}" for n in range(1, 6)] + [f"A.{n}" for n in range(1, 5)]
    numbers += ["B.1a", "B.1b–d", "B.1e", *(f"B.{n}" for n in range(2, 6))]
    numbers += [f"C.{n}" for n in range(1, 7)] + ["D.1", "D.2"]
    kinds = "Definition|Assumption|Theorem|Lemma|Proposition|Remark"
    for number in numbers:
        assert re.search(rf"^\| (?:{kinds}) {re.escape(number)}[, ]", rows, re.M), number
    assert all(f"| Algorithm {n}," in rows for n in (1, 2, 3))


def test_every_function_of_the_theory_is_in_the_page():
    named = {span.rpartition(": ")[2] for span, _ in spans()}
    for path in sorted((ROOT / "src" / "fedopl" / "theory").glob("*.py")):
        if path.stem in ("__init__", "checks"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert node.name in named, f"{path.stem}: {node.name}"
