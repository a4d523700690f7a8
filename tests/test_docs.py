"""What the documents say is tried.

Every ```python block of README.md and docs/*.md is run, in a temporary folder that holds the files
of `make_files`. Blocks of one page share their names and run in order. README.md starts from
nothing; a page of docs/ starts from what `given` returns. A block that cannot run, because it is a
piece of a file, stands below a line `<!-- not run -->`, which no reader sees.

Every `$ fedopl` line of a ```console block must be one that the command line takes. Those of the
pages in `WALKS` are run in order, and what the page shows below them must be what they print: `…`
stands for anything, numbers may differ a little, times and hashes altogether. A ```toml block
below `<!-- appended to FILE -->` is appended to that file.
"""

import contextlib
import html
import importlib
import io
import json
import re
import shlex
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

import fedopl
from fedopl.cli.app import app
from fedopl.client.client_file import read_clients
from fedopl.demo.writing import write_demo
from fedopl.engines.run import run as run_study
from fedopl.messages import codec
from fedopl.messages.about_masks import MaskedSums
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.message import Axis
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import QUERIES
from fedopl.study.study import Study

pytestmark = pytest.mark.usefixtures("propensities_fitted_once")

ROOT = Path(__file__).parents[1]
NOT_RUN = "<!-- not run -->"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    ROOT / "benchmarks" / "README.md",
]
MESSAGES = ROOT / "docs" / "messages.md"


def title(page):
    return page.relative_to(ROOT).as_posix()


# --- (a) code runs -----------------------------------------------------------------------------


def blocks(page):
    """The (line number, code) of every block that is meant to run."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if not text[: found.start()].rstrip().endswith(NOT_RUN):
            yield text.count("\n", 0, found.start()) + 1, found[1]


def _is_run(page):
    """Whether it has code to run here; tests/test_exercises.py follows exercises step by step."""
    return any(blocks(page)) and page.stem not in ("how-to-add-a-message", "how-to-add-a-policy")


def make_files(folder):
    """Tables that have every column any page reads."""
    rng = np.random.default_rng(0)
    n_rows = 400
    columns = {
        "arm": rng.choice(["usual care", "new drug"], n_rows),
        "days_in_hospital": rng.gamma(2, 3, n_rows).round(1),
        "age": rng.normal(60, 10, n_rows).round(),
        "severity": rng.gamma(3, 1, n_rows).round(2),
        "sex": rng.choice(["f", "m"], n_rows),
        "plan": rng.choice([0, 25, 50, 95], n_rows),
        "visits": rng.poisson(3, n_rows),
        "income": rng.gamma(2, 20_000, n_rows).round(),
        "site": rng.choice(["Dayton", "Seattle"], n_rows),
        "p": np.full(n_rows, 0.25),
        "w": rng.choice([1, 2], n_rows),
        "person": rng.integers(0, 100, n_rows),
    }
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    for name in ("north.csv", "south.csv"):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    parquet.write_table(pa.table(columns), folder / "north.parquet")
    renamed = ",".join({"plan": "coins", "age": "xage"}.get(name, name) for name in columns)
    labels = {"Dayton": "1", "Seattle": "2"}
    own = [re.sub("Dayton|Seattle", lambda site: labels[site[0]], line) for line in lines[1:]]
    (folder / "export.csv").write_text("\n".join([renamed, *own]) + "\n", encoding="latin-1")


def given(page):
    """The names that a page may take for granted."""
    if page.name == "README.md":
        return {}
    rng = np.random.default_rng(1)
    arrays = {
        "contexts": rng.standard_normal((300, 4)),
        "actions": rng.integers(0, 3, 300),
        "rewards": rng.standard_normal(300),
    }
    return {"fedopl": fedopl, "np": np, "data": fedopl.LoggedData(*arrays.values()), **arrays}


@pytest.mark.parametrize("page", [p for p in PAGES if _is_run(p)], ids=title)
def test_code_in_a_page_runs(page, tmp_path, monkeypatch):
    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = given(page)
    for line, code in blocks(page):
        # As many empty lines as stand before it, so that a traceback names the page's own line.
        program = compile("\n" * line + code, title(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(program, names)


def test_a_marker_stands_only_above_a_block():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert text.count(NOT_RUN) == text.count(f"{NOT_RUN}\n```python\n"), title(page)


def test_the_verdict_in_the_page_is_the_one_printed(tmp_path):
    study, _ = fedopl.read_study(write_demo(tmp_path, "three-hospitals"))
    folders = read_clients(tmp_path / "clients")
    clients = {name: client.read(study.table) for name, client in folders.items()}
    page = " ".join((ROOT / "docs" / "learning.md").read_text(encoding="utf-8").split())
    words = re.split(r"([\d.]*\d)", fedopl.learn(clients).verdict)
    pattern = r"([\d.]*\d)".join(map(re.escape, words[::2]))
    printed = re.search(pattern, page)
    assert printed, "the page has another sentence"
    # Not to the last digit: solvers of other versions differ there.
    assert [float(n) for n in printed.groups()] == pytest.approx(
        [float(n) for n in words[1::2]], rel=0.1
    )


def test_toml_in_a_page_can_be_read():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S):
            assert tomllib.loads(found), title(page)


def test_the_basis_in_the_page_is_one_that_the_demo_learns_with(tmp_path):
    study = write_demo(tmp_path, "three-hospitals")
    page = (ROOT / "docs" / "basis.md").read_text(encoding="utf-8")
    (basis,) = re.findall(r'^```toml\n(\[basis\]\nkind = "auto".*?)^```$', page, re.M | re.S)
    with study.open("a", encoding="utf-8") as file:
        file.write(f"\n{basis}")
    record = run_study(study, tmp_path / "clients", out=tmp_path / "run")
    assert len(record.statistics.choice.losses) == len(record.study.terms.families)
    (asked,) = (one for one in record.rounds if one.query == "SumByFold")
    assert not asked.refused


# --- (b) the message table is the vocabulary -----------------------------------------------------

EXAMPLE = Study(actions=tuple("abcd"), features=tuple(f"x{column}" for column in range(10)))
# A network has a size only where a study has one: that of the default.
NETWORK = axis_sizes(EXAMPLE.model_copy(update={"policy": fedopl.Neural()}))
SIZES = {**axis_sizes(EXAMPLE), Axis.NETWORK_NUMBERS: NETWORK[Axis.NETWORK_NUMBERS]}
BUDGET = axis_sizes(EXAMPLE.model_copy(update={"budget": fedopl.Budget(shares={"a": 0.5})}))
SIZES |= {axis: BUDGET[axis] for axis in (Axis.PRICES, Axis.PARTS)}
TREE = axis_sizes(EXAMPLE.model_copy(update={"policy": fedopl.Tree()}))
SIZES |= {axis: TREE[axis] for axis in (Axis.LEAVES, Axis.LEAVES_NODES)}
# Of three clients that add up the first sums under masks.
SIZES |= {Axis.PARTIES: range(3, 4), Axis.MASKED: range(4 * 11 * 12, 4 * 11 * 12 + 1)}
# Of whom one may be lacking in any of six sums.
SIZES |= {Axis.HOLDERS: range(3, 4), Axis.MASK_SECRETS: range(12, 13)}


def size(content):
    """What a field holds, in numbers."""
    if not isinstance(content, tuple):
        plain = {int: "a whole number", float: "a number"}
        return plain.get(content) or f"one of {len(content)}"
    spans = [(min(SIZES[axis]), max(SIZES[axis])) for axis in content]
    return " × ".join(f"{low}" if low == high else f"{low}–{high}" for low, high in spans)


def table_of(messages):
    """The table that the page must have for these messages."""
    yield "| message · code · bytes | field | axes | size |"
    yield "|---|---|---|---|"
    for message in messages:
        name = f"`{message.__name__}` · {message.code} · {codec.most_bytes(message, SIZES):,}"
        own = [field for field in codec.FIELDS[message] if field[0] not in ("study", "exchange")]
        fields = [f"`{field}`" for field, _ in own]
        arrays = [content if isinstance(content, tuple) else () for _, content in own]
        axes = [" × ".join(axis.value for axis in array) or "–" for array in arrays]
        columns = (fields, axes, [size(content) for _, content in own])
        yield f"| {name} | {' | '.join('<br>'.join(cells) or '–' for cells in columns)} |"


@pytest.mark.parametrize(
    ("part", "messages"),
    [
        ("queries", [*QUERIES]),
        ("answers", [*dict.fromkeys(query.answer for query in QUERIES), MaskedSums, Refusal]),
    ],
    ids=["queries", "answers"],
)
def test_the_table_of_messages_is_the_vocabulary(part, messages):
    text = MESSAGES.read_text(encoding="utf-8")
    written = text.split(f"<!-- {part} -->\n")[1].split(f"<!-- end of {part} -->")[0]
    assert written == "".join(f"{row}\n" for row in table_of(messages))


def test_every_refusal_and_every_limit_is_explained():
    text = MESSAGES.read_text(encoding="utf-8")
    for code in RefusalCode:
        assert f"| {code.name} |" in text
    for name, option in fedopl.Limits.model_fields.items():
        plain = "true" if option.default is True else f"{option.default:g}"
        default = plain.replace("e+", "e")
        assert f"| `{name}` | {default} |" in text


def test_every_option_of_the_training_plan_is_explained():
    text = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    for name, option in fedopl.TrainingPlan.model_fields.items():
        default = {None: "all", "steps": '`"steps"`'}.get(option.default, option.default)
        shown = default if isinstance(default, str) else f"{default:g}"
        assert f"| `{name}` | {shown} |" in text


# --- (c) commands are those of the command line, and print what the page shows -------------------

WALKS = [
    ROOT / "docs" / f"{name}.md"
    for name in ("tutorial", "rand-hie", "trees", "joining", "joining-later", "deciding")
]
NEEDS = {"rand-hie.md": "statsmodels"}
NUMBER = r"(\d[\d,]*\.?\d*)"
APPENDED = r"<!-- appended to (\S+) -->\n```toml\n(.*?)^```$"


def consoles(page):
    """The console blocks of a page: lists of (command, lines shown below it)."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S):
        yield found.start(), transcript(found[1])


def transcript(block):
    steps = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:].partition("  #")[0], []))
        else:
            steps[-1][1].append(line)
    return steps


def commands_shown():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for _, steps in consoles(page):
            for command, _ in steps:
                yield pytest.param(command, id=f"{page.name}: {command}")


@pytest.mark.parametrize("command", list(commands_shown()))
def test_a_command_in_a_page_is_one_that_can_be_given(command):
    program, *words = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M)
    elif program == "fedopl":
        verb, *arguments = words
        # Parses names, options and values, and runs nothing.
        typer.main.get_group(app).commands[verb].make_context(verb, arguments)
    else:
        assert program in ("cd", "cp", "pip", "python")


def fits(shown, printed):
    """Whether a printed line is the one shown, but for a little in its numbers."""
    shown, printed = plain(shown), plain(printed)
    parts = [re.split(NUMBER, part) for part in shown.split("…")]
    pattern = ".*".join(NUMBER.join(map(re.escape, words[::2])) for words in parts)
    found = re.fullmatch(pattern, printed)
    told = [number(text) for words in parts for text in words[1::2]]
    # As wide as elsewhere: solvers of other versions differ in the last digits.
    return found and [number(n) for n in found.groups()] == pytest.approx(told, rel=0.1, abs=0.01)


def plain(line):
    """Without what differs from run to run: times, hashes, and how wide columns are."""
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{8}\b|\b[a-f]{8}\b", "HASH", line)
    return " ".join(re.sub("─+", "─", line).split())


def number(text):
    return float(text.replace(",", ""))


def walk(page):
    """Run a page's commands in order; (command, lines shown, what was printed) for each."""
    text = page.read_text(encoding="utf-8")
    edits = [(found.start(), found) for found in re.finditer(APPENDED, text, re.M | re.S)]
    for _, step in sorted([*consoles(page), *edits], key=lambda placed: placed[0]):
        if isinstance(step, re.Match):
            with Path(step[1]).open("a", encoding="utf-8") as file:
                file.write(step[2])
            continue
        for command, shown in step:
            yield command, shown, run(command)


def run(command):
    program, *words = shlex.split(command)
    if program == "fedopl":
        result = CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, command
        return result.output
    if program == "cp":
        shutil.copy(*words)
    return ""  # whoever walks changes folders


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("page", WALKS, ids=title)
def test_commands_of_a_walk_print_what_the_page_shows(page, tmp_path, monkeypatch):
    if find_spec(NEEDS.get(page.name, "json")) is None:
        pytest.skip(f"{page.name} needs {NEEDS[page.name]}")
    monkeypatch.chdir(tmp_path)
    heard = []
    for command, shown, printed in walk(page):
        if command.startswith("cd "):
            monkeypatch.chdir(command[3:])
        heard.append(printed)
        lines = iter(printed.splitlines())
        for line in shown:
            if line.strip() not in ("", "…"):
                assert any(fits(line, other) for other in lines), f"{command}\n{line}"
    reports = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("report.html")]
    known = numbers_in(" ".join([*heard, *(re.sub(r"<[^>]+>", " ", r) for r in reports)]))
    for said in numbers_in(prose(page)):
        assert any(said == pytest.approx(other, rel=0.02) for other in known), said


def prose(page):
    """A page without its code and its links."""
    text = re.sub(
        r"^```.*?^```$|^    .*?$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


def numbers_in(text):
    """Numbers with a decimal point, without their sign."""
    return {float(n) for n in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", html.unescape(text))}


@pytest.mark.usefixtures("without_figures")
def test_json_has_the_keys_that_the_reference_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    run("fedopl demo . --data three-hospitals")
    for command in (
        "run --out run --resume",
        "check",
        "preview study.toml clients/west",
        "diagnose run",
        "explain run",
        "decide run clients/north/discharges.csv --out decided.csv",
        "evaluate run/policy.json",
    ):
        content = json.loads(run(f"fedopl {command} --json"))
        section = page.split(f"\n### {command.split()[0]}\n")[1].split("\n### ")[0]
        for key in content if isinstance(content, dict) else ("query", "answer", "bytes"):
            assert f"`{key}`" in section or command.startswith("evaluate"), f"{command}: {key}"
    for path in Path("run").iterdir():
        assert f"| `{path.name}{'/' * path.is_dir()}` |" in page


# --- (d) tables are the code's -------------------------------------------------------------------


@pytest.mark.parametrize("script", ["reference_page", "performance_page"])
def test_the_tables_of_a_page_are_those_of_the_code(script):
    page = importlib.import_module(script)
    text = page.PAGE.read_text(encoding="utf-8")
    for mark, lines in page.tables().items():
        written = text.split(f"<!-- {mark} -->\n")[1].split(f"<!-- end of {mark} -->")[0]
        # If not: python experiments/reference_page.py, or the other
        assert written == "".join(f"{line}\n" for line in lines), mark


# --- (e) links lead somewhere --------------------------------------------------------------------


@pytest.mark.parametrize("page", LINKED, ids=title)
def test_relative_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path = target.partition("#")[0]
            assert (page.parent / path).exists(), f"{title(page)}: {target}"


def test_files_that_a_page_names_are_there():
    """A path may start at the root, at the package, or be a file's name alone."""
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*.py")]
    made = {  # by the exercises
        "src/fedopl/messages/learning/context_sums.py",
        "src/fedopl/client/answers/sum_contexts.py",
        "src/fedopl/policies/gated.py",
        "src/fedopl/server/oracles/solve_gate.py",
    }
    for page in LINKED:
        for named in re.findall(r"`([\w./-]+\.py)\b", page.read_text(encoding="utf-8")):
            found = any(f"/{path}".endswith(f"/{named}") for path in files)
            assert found or named in made, f"{title(page)}: {named}"


def test_no_figure_of_a_page_is_still_to_be_filled_in():
    for page in LINKED:
        assert not re.findall(r"@[a-z_]+@", page.read_text(encoding="utf-8")), title(page)
