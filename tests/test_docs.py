"""What the documents say is tried.

Every ```python block of README.md and docs/*.md is run, in a temporary folder that holds the files
of `make_files`. Blocks of one page share their names and run in order. README.md starts from
nothing; a page of docs/ starts from what `given` returns. A block that cannot run, because it is a
piece of a file, stands below a line `<!-- not run -->`, which no reader sees.
"""

import contextlib
import enum
import importlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

import fedopl
from fedopl.study import Study
from fedopl.wire import codec
from fedopl.wire.vocabulary import ANSWERS, Refusal, RefusalCode, axis_sizes

ROOT = Path(__file__).parents[1]
NOT_RUN = "<!-- not run -->"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    *(ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "benchmarks/README.md")),
]
MESSAGES = ROOT / "docs" / "what-leaves-a-client.md"


def title(page):
    return page.relative_to(ROOT).as_posix()


# --- (a) code runs -----------------------------------------------------------------------------


def blocks(page):
    """The (line number, code) of every block that is meant to run."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if not text[: found.start()].rstrip().endswith(NOT_RUN):
            yield text.count("\n", 0, found.start()) + 1, found[1]


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


@pytest.mark.parametrize("page", [p for p in PAGES if any(blocks(p))], ids=title)
def test_code_in_a_page_runs(page, tmp_path, monkeypatch):
    make_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")
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


def test_the_verdict_in_the_page_is_the_one_printed(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    hospitals = importlib.import_module("three_hospitals")
    clients = {name: hospitals.patients(name, n) for name, n in hospitals.HOSPITALS.items()}
    page = " ".join((ROOT / "docs" / "learning.md").read_text(encoding="utf-8").split())
    words = re.split(r"([\d.]*\d)", fedopl.learn(clients).verdict)
    pattern = r"([\d.]*\d)".join(map(re.escape, words[::2]))
    printed = re.search(pattern, page)
    assert printed, "the page has another sentence"
    # Not to the last digit: solvers of other versions differ there.
    assert [float(n) for n in printed.groups()] == pytest.approx(
        [float(n) for n in words[1::2]], rel=0.1
    )


# --- (b) the message table is the vocabulary -----------------------------------------------------

EXAMPLE = Study(actions=tuple("abcd"), features=tuple(f"x{column}" for column in range(10)))
SIZES = axis_sizes(EXAMPLE)


def most_bytes(message):
    """The size of the largest message of a kind in the example."""
    values = {}
    for name, content in codec.FIELDS[message]:
        if isinstance(content, tuple):
            values[name] = np.zeros([max(SIZES[axis]) for axis in content])
        elif issubclass(content, enum.Enum):
            values[name] = next(iter(content))
        else:
            values[name] = bytes(32) if content is bytes else content(0)
    return len(codec.encode(message(**values)))


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
        name = f"`{message.__name__}` · {message.code} · {most_bytes(message):,}"
        own = [field for field in codec.FIELDS[message] if field[0] not in ("study", "exchange")]
        fields = [f"`{field}`" for field, _ in own]
        arrays = [content if isinstance(content, tuple) else () for _, content in own]
        axes = [" × ".join(axis.value for axis in array) or "–" for array in arrays]
        columns = (fields, axes, [size(content) for _, content in own])
        yield f"| {name} | {' | '.join('<br>'.join(cells) or '–' for cells in columns)} |"


@pytest.mark.parametrize(
    ("part", "messages"),
    [("queries", [*ANSWERS]), ("answers", [*ANSWERS.values(), Refusal])],
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
        default = "all" if option.default is None else f"{option.default:g}"
        assert f"| `{name}` | {default} |" in text


# --- (c) links lead somewhere --------------------------------------------------------------------


@pytest.mark.parametrize("page", LINKED, ids=title)
def test_relative_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            path = target.partition("#")[0]
            assert (page.parent / path).exists(), f"{title(page)}: {target}"
