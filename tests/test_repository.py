"""Repository files: workflows and hooks call make targets that exist, versions agree."""

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import coverage_by_room
import pytest
from packaging.requirements import Requirement

import longest_first
from fedopl.engines.flower.local_federation import QUIET

ROOT = Path(__file__).parents[1]
CALLERS = [
    *sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    ROOT / ".pre-commit-config.yaml",
]


@pytest.mark.parametrize("path", CALLERS, ids=lambda path: path.name)
def test_a_workflow_only_calls_make_targets_that_exist(path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    called = re.findall(r"(?:run|entry): (.*)", path.read_text(encoding="utf-8"))
    for command in called:
        program, target, *_ = command.split()
        assert program == "make", command
        assert target in targets, command


def test_the_version_is_the_same_wherever_it_is_written():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\n## {project['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_lowest_python_is_the_one_that_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lowest = project["requires-python"].removeprefix(">=")
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert f'python: ["{lowest}", ' in tests


def _file(lines, covered, branches, met, missing=(), jumps=()):
    numbers = (lines, covered, branches, met)
    summary = dict(zip(coverage_by_room.PARTS, numbers, strict=True))
    return {"summary": summary, "missing_lines": list(missing), "missing_branches": list(jumps)}


def test_coverage_is_added_up_by_room():
    files = {
        "src/fedopl/client/door.py": _file(10, 9, 4, 3),
        "src/fedopl/client/rows/folds.py": _file(6, 6, 0, 0),
        "src/fedopl/__init__.py": _file(5, 5, 0, 0),
    }
    rooms = coverage_by_room.by_room(files)
    assert coverage_by_room.reached(rooms["client"]) == 100 * 18 / 20
    assert coverage_by_room.reached(rooms["fedopl"]) == 100


def test_missing_branches_of_missing_lines_are_not_named_twice():
    found = _file(10, 8, 4, 1, missing=[3, 4], jumps=[[3, 5], [7, 9], [8, -1]])
    assert coverage_by_room.missing(found) == "3, 4, 7→9, 8→end"


# Modules of one kind offer the same function: a client's answers, a server's oracles. A verb of the
# command line is called as the library's function that does its work.
SHARED_NAMES = {"answer", "learn", "exchanges", "check", "diagnose", "evaluate", "run"}


def public_names(path):
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def test_a_public_name_has_one_home():
    homes = defaultdict(set)
    for path in (ROOT / "src").rglob("*.py"):
        for name in public_names(path):
            if not name.startswith("_"):
                homes[name].add(path.name)
    several = {name: found for name, found in homes.items() if len(found) > 1}
    assert several.keys() <= SHARED_NAMES, several


def test_a_file_name_is_found_in_one_folder():
    names = [path.name for path in (ROOT / "src").rglob("*.py") if path.name != "__init__.py"]
    assert len(names) == len(set(names))


WRITTEN = sorted(
    path
    for path in ROOT.rglob("*")
    if path.suffix in {".md", ".py", ".toml", ".yml", ".json", ".csv"}
    and not any(part.startswith(".") and part != ".github" for part in path.relative_to(ROOT).parts)
    and path.relative_to(ROOT).parts[0] not in ("build", "demo", "dist")  # made, and not ours
)


def test_files_of_tests_that_start_first_are_there():
    for name in longest_first.LONGEST:
        assert (longest_first.HERE / name).is_file(), name


def test_no_file_has_a_merge_half_done():
    """The two sides of a conflict, between lines that git writes."""
    sides = re.compile(r"^(<{7} |>{7} |={7}$)", re.M)
    assert len(WRITTEN) > 500
    assert [path for path in WRITTEN if sides.search(path.read_text(encoding="utf-8"))] == []


DEPLOY = ROOT / "deploy"


@pytest.mark.parametrize("party", ["client", "server"])
def test_an_image_installs_locked_versions_and_has_no_rights(party):
    text = (DEPLOY / f"{party}.Dockerfile").read_text(encoding="utf-8")
    assert "--require-hashes --requirement /tmp/install/constraints.txt" in text
    assert "\nUSER 10001\n" in text
    for name, value in QUIET.items():
        assert f"{name}={value}" in text


def test_locked_versions_have_hashes_and_are_those_that_the_project_admits():
    text = (DEPLOY / "constraints.txt").read_text(encoding="utf-8")
    locked = dict(re.findall(r"^([\w-]+)(?:\[.*\])?==([^ ;]+)", text, re.M))
    assert text.count("--hash=sha256:") >= len(locked)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    flower = project["optional-dependencies"]["flower"]
    # If not: make constraints
    for wanted in map(Requirement, (*project["dependencies"], *flower)):
        assert wanted.specifier.contains(locked[wanted.name]), wanted


def test_the_compose_file_starts_a_server_and_the_sites_that_are_prepared():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    (names,) = re.findall(r"for name in (.*); do", (DEPLOY / "prepare").read_text(encoding="utf-8"))
    assert sorted(services) == sorted(["superlink", *names.split()])
    for service in services.values():
        assert (DEPLOY / ".." / service["build"]["dockerfile"]).exists()
        assert service["cap_drop"] == ["ALL"]
        assert "ports" not in service
