"""What is exported decides every row as the policy does: run in each language, on the same rows."""

import csv
import itertools
import shutil
import sqlite3
import subprocess
import sys
from types import SimpleNamespace

import duckdb
import numpy as np
import openpyxl
import pyarrow as pa
import pytest

from fedopl.base.errors import OptionError, PolicyError
from fedopl.base.schema import Encoding
from fedopl.client.apply_policy import decide_table
from fedopl.policies.basis import Basis
from fedopl.policies.bent import BentPolicy
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.export import excel_workbook
from fedopl.policies.export.excel_workbook import column_name
from fedopl.policies.linear import NEVER, LinearPolicy, constant_policy
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.policies.terms import Terms
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf

ACTIONS = ("stay", 'it\'s "go"', "1; DROP TABLE rows; --")
WARDS = ("A", "a", 'O\'Neil\u00a0"x" */ \\', "25")
CUT = 0.1 + 0.2  # which no program may shorten


def encoding_of(missing, **rules):
    return Encoding(
        **rules,
        numeric=("age", 'in"come'),
        categorical={"ward": WARDS, "on": ("no", "yes")},
        missing=missing,
    )


def policies_of(encoding):
    """Every kind, with ties and with cuts that rows lie on."""
    about = (ACTIONS, encoding.feature_names, encoding)
    rng = np.random.default_rng(1)
    size = (3, len(encoding.feature_names) + 1)
    whole = rng.integers(-2, 3, size).astype(float)
    never = rng.normal(size=size)
    never[1] = [*[0.0] * (size[1] - 1), NEVER]
    columns = [column.name for column in TreePolicy(Leaf(0), *about).columns]
    age, ward, on = (columns.index(name) for name in ("age", "ward", "on"))
    marks = columns.index("age is missing") if "age is missing" in columns else on
    root = Branch(
        age,
        CUT,
        Branch(ward, 0.0, Leaf(0), Branch(ward, 2.0, Leaf(1), Leaf(2))),
        Branch(marks, 0.0, Branch(on, 1.0, Leaf(1), Leaf(0)), Branch(ward, 3.0, Leaf(2), Leaf(1))),
    )
    return {
        **bent_policies_of(encoding),
        "linear": LinearPolicy(rng.normal(size=size), *about),
        "ties": LinearPolicy(whole, *about),
        "never": LinearPolicy(never, *about),
        "constant": LinearPolicy(constant_policy(ACTIONS[1], *about[:2]).parameters, *about),
        "pairwise": PairwisePolicy(whole, *about),
        "tree": TreePolicy(root, *about),
        "leaf": TreePolicy(Leaf(2), *about),
        "personal, bent": BentPolicy.bending(
            LinearPolicy(never, *about),
            np.array([-0.5, 0.25, 1.0]),
            np.array([1.0, -1.5, 0.75, 2.0]),
        ),
        "cautious": CautiousPolicy.doubting(
            LinearPolicy(rng.normal(size=size), *about),
            np.triu(rng.normal(size=(3, size[1], size[1]))),
        ),
    }


def bent_policies_of(encoding):
    """Policies that are linear in terms of a basis, whether these are all used or only some."""
    features = encoding.feature_names
    knots = {"age": (-0.7, CUT, 0.9), 'in"come': (0.5, 2.0)}
    products = ("age", 'in"come', "ward=a", "on=yes")
    jumps = ((("age", -0.3),), (("age", 0.5), ('in"come', 1.5)))
    found = {"screened_thresholds": 2, "found_thresholds": jumps}
    basis = Basis(knots=knots, products=products, waves=4, **found)
    about = (ACTIONS, features, encoding, Terms(basis, features))
    sizes, rng = about[3].sizes, np.random.default_rng(2)
    found = {}
    for name, n_used in {**sizes, "some-hinges": sizes["linear"] + 2, "none": 0}.items():
        parameters = rng.normal(size=(3, about[3].n_terms + 1))
        parameters[:, n_used:-1] = 0.0
        found[f"basis-{name}"] = LinearPolicy(parameters, *about)
    return found


def rows_of(labels=(*WARDS, None, "NA", "b", "A ")):
    """Numbers on a cut, beside it and missing, and labels known, unknown and missing."""
    beside = np.nextafter(CUT, 1)
    numbers = (CUT, beside, 0.3, -1.5, 2.0, 0.0, None, float("inf"))
    rows = [
        {"age": age, 'in"come': income, "ward": ward, "on": on}
        for age, ward, on in itertools.product(numbers, labels, ("no", "yes", None))
        for income in (1.0,)
    ]
    rows += [{**rows[0], 'in"come': income} for income in (*numbers, 1e300, -1e-300)]
    return rows


def expected_of(policy, rows, folder, **names):
    """What `fedopl decide` writes, with nothing where it cannot decide."""
    source, out = folder / "rows.csv", folder / "expected.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    decide_table(policy, source, out, undecided="blank", formulas="keep", **names)
    with out.open(newline="", encoding="utf-8") as file:
        return [row["action"] or None for row in csv.DictReader(file)]


# --- every language, run --------------------------------------------------------------------------


def _by_sqlite(path, rows):
    base = sqlite3.connect(":memory:")
    # Without types, as SQLite keeps in a column whatever is put there.
    base.execute('CREATE TABLE "rows" (age, "in""come", ward, "on")')
    base.executemany(
        'INSERT INTO "rows" VALUES (?, ?, ?, ?)', [tuple(row.values()) for row in rows]
    )
    found = base.execute(path.read_text(encoding="utf-8")).fetchall()
    assert [row[:4] for row in found] == [tuple(row.values()) for row in rows]
    return [row[4] for row in found]


def _by_duckdb(path, rows):
    base = duckdb.connect()
    base.execute('CREATE TABLE "rows" (age DOUBLE, "in""come" DOUBLE, ward VARCHAR, "on" VARCHAR)')
    base.register("given", pa.Table.from_pylist(rows))
    base.execute('INSERT INTO "rows" SELECT * FROM given')
    found = base.execute(path.read_text(encoding="utf-8")).fetchall()
    key = [*base.execute('SELECT * FROM "rows"').fetchall()]
    decided = dict(zip([row[:4] for row in found], [row[4] for row in found], strict=True))
    return [decided[row] for row in key]


def _by_python(path, rows):
    module = SimpleNamespace()
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))
    return [module.decide(row) for row in rows]


def _by_running_python(path, rows):
    """On the CSV file that the policy itself decided on, without any package."""
    source = path.parent / "rows.csv"
    done = subprocess.run(
        [sys.executable, "-I", "-S", path, source],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert len(rows) == len(done.stdout.splitlines()) - 1
    return [row["action"] or None for row in csv.DictReader(done.stdout.splitlines())]


def _by_onnx(path, rows):
    runtime = pytest.importorskip("onnxruntime")
    inputs = {
        name: np.array([[np.nan if row[name] is None else row[name]] for row in rows], np.float64)
        for name in ("age", 'in"come')
    }
    inputs |= {
        name: np.array([[row[name] or ""] for row in rows], object) for name in ("ward", "on")
    }
    (found,) = runtime.InferenceSession(str(path)).run(["action"], inputs)
    return [text or None for text in found[:, 0].tolist()]


RUNNERS = {
    "sql": (_by_sqlite, _by_duckdb),
    "python": (_by_python, _by_running_python),
    "onnx": (_by_onnx,),
}
RUNS = [(to, run) for to, runners in RUNNERS.items() for run in runners]


@pytest.mark.parametrize(("to", "run"), RUNS, ids=lambda one: getattr(one, "__name__", one))
@pytest.mark.parametrize("missing", ["indicator", "drop", "error"])
def test_an_export_decides_every_row_as_the_policy_does(to, run, missing, tmp_path):
    if to == "onnx":
        pytest.importorskip("onnx")
    rows = rows_of()
    for kind, policy in policies_of(encoding_of(missing)).items():
        expected = expected_of(policy, rows, tmp_path)
        n_undecided = expected.count(None)
        assert 0 < n_undecided < len(rows), kind
        found = run(policy.export(tmp_path / f"{kind}.file", to), rows)
        wrong = [(row, e, f) for row, e, f in zip(rows, expected, found, strict=True) if e != f]
        assert not wrong, (kind, len(wrong), wrong[:3])


@pytest.mark.parametrize(("to", "run"), RUNS, ids=lambda one: getattr(one, "__name__", one))
@pytest.mark.parametrize("missing", ["indicator", "error"])
def test_labels_that_are_not_listed_are_pooled_as_the_policy_does(to, run, missing, tmp_path):
    if to == "onnx":
        pytest.importorskip("onnx")
    rows = rows_of()
    for other in ("A", "25"):
        policies = policies_of(encoding_of(missing, others={"ward": other}))
        for kind in ("linear", "tree"):
            expected = expected_of(policies[kind], rows, tmp_path)
            path = policies[kind].export(tmp_path / f"{kind}.file", to)
            assert run(path, rows) == expected, (other, kind)


def test_a_date_is_read_as_what_its_rule_makes_of_it(tmp_path):
    encoding = Encoding(dates={"seen": "days since 2025-01-01", "born": "month"})
    policy = TreePolicy(
        Branch(0, 30.0, Leaf(0), Branch(1, 1.0, Leaf(1), Leaf(2))),
        ACTIONS,
        encoding.feature_names,
        encoding,
    )
    path = policy.export(tmp_path / "policy.py")
    text = path.read_text(encoding="utf-8")
    assert "seen: not the date but its 'days since 2025-01-01', a number" in text
    assert "born: not the date but its 'month', one of 1, 2, 3" in text
    rows = [{"seen": d, "born": m} for d, m in ((30, "2"), (31, "2"), (31, 3), ("2025-02-03", "2"))]
    assert _by_python(path, rows) == [*ACTIONS, None]


def test_sqlite_text_in_a_column_of_numbers_is_not_taken_for_zero(tmp_path):
    row = {"age": 2.0, 'in"come': 1.0, "ward": "A", "on": "no"}
    rows = [
        row,
        {**row, "age": "abc"},
        {**row, "age": ""},
        {**row, "ward": 25},
        {**row, "ward": 25.0},
    ]
    policy = policies_of(encoding_of("error"))["tree"]
    found = _by_sqlite(policy.export(tmp_path / "policy.sql"), rows)
    labels = [{**row, "ward": label} for label in ("A", "25")]
    first, of_25 = expected_of(policy, labels, tmp_path)
    assert found == [first, None, None, of_25, of_25]


@pytest.mark.parametrize("to", ["sql", "python"])
def test_a_clients_own_names_of_columns_and_labels_are_read(to, tmp_path):
    policy = policies_of(encoding_of("error"))["tree"]
    rows = [
        {"years": age, "pay": 1.0, "ward": ward, "on": on}
        for age in (CUT, 2.0)
        for ward in ("ward A", "A", WARDS[2], "NA", "a")
        for on in ("yes", "no")
    ]
    names = {
        "columns": {"age": "years", 'in"come': "pay"},
        # What is called A here is the study's 25, and NA is a label.
        "labels": {"ward": {"ward A": "A", "A": "25", "NA": "a"}},
    }
    expected = expected_of(policy, rows, tmp_path, **names)
    assert set(expected) == set(ACTIONS)
    path = policy.export(tmp_path / "policy.file", to, table="my rows", **names)
    if to == "python":
        assert _by_python(path, rows) == expected
    else:
        base = sqlite3.connect(":memory:")
        base.execute('CREATE TABLE "my rows" (years, pay, ward, "on")')
        base.executemany(
            'INSERT INTO "my rows" VALUES (?, ?, ?, ?)', [tuple(row.values()) for row in rows]
        )
        found = base.execute(path.read_text(encoding="utf-8")).fetchall()
        assert [row[-1] for row in found] == expected


@pytest.mark.parametrize("to", ["sql", "python"])
def test_a_policy_learned_on_arrays_reads_its_features_as_columns(to, tmp_path):
    rows = [{"x": x, "y": y} for x in (-1.0, 0.25, 3.0) for y in (0.0, 1.0)]
    policy = TreePolicy(
        Branch(0, 0.25, Leaf(1), Branch(1, 0.5, Leaf(0), Leaf(2))), ACTIONS, ("x", "y")
    )
    expected = policy.names([list(row.values()) for row in rows]).tolist()
    path = policy.export(tmp_path / "policy.file", to)
    if to == "python":
        assert _by_python(path, rows) == expected
    else:
        base = sqlite3.connect(":memory:")
        base.execute('CREATE TABLE "rows" (x, y)')
        base.executemany('INSERT INTO "rows" VALUES (?, ?)', [tuple(row.values()) for row in rows])
        assert [row[2] for row in base.execute(path.read_text(encoding="utf-8"))] == expected


# --- spreadsheets ---------------------------------------------------------------------------------

# A spreadsheet takes numbers that differ in their sixteenth digit for the same.
SPREADSHEET_ROWS = [
    {"age": age, 'in"come': 1.0, "ward": ward, "on": on}
    for age, (ward, on) in itertools.product(
        (CUT, CUT + 1e-12, -1.5, None),
        (*zip(WARDS, ("no", "yes") * 2, strict=True), (None, "yes"), ("b", "no"), ("a", None)),
    )
]
SPREADSHEET_KINDS = (
    "linear",
    "ties",
    "pairwise",
    "tree",
    "basis-hinges",
    "basis-waves",
    "personal, bent",
)


def by_formulas(path, rows):
    """By the first row's formulas, each worked out in its turn with the cells of every row."""
    formulas = pytest.importorskip("formulas")
    book = openpyxl.load_workbook(path)
    n_inputs = len(rows[0])
    steps = {f"WORKING!{cell.coordinate}": cell.value for cell in book["working"][2]}
    steps["action"] = book["decide"].cell(2, n_inputs + 1).value
    compiled = {name: formulas.Parser().ast(text)[1].compile() for name, text in steps.items()}
    kept = {f"NUMBERS!{cell.coordinate}": cell.value for line in book["numbers"] for cell in line}
    found = []
    for row in rows:
        filled = zip(map(column_name, range(n_inputs)), row.values(), strict=True)
        cells = kept | {f"DECIDE!{letter}2": value for letter, value in filled}
        for name, formula in compiled.items():
            given = [_cells(reference, cells) for reference in formula.inputs or ()]
            cells[name] = np.asarray(formula(*given)).ravel()[0]
        found.append(None if str(cells["action"]) == "#N/A" else str(cells["action"]))
    return found


def _cells(reference, cells):
    import schedula

    sheet, _, places = reference.partition("!")
    first, _, last = places.partition(":")
    (columns, row), (last_column, _) = (
        (openpyxl.utils.cell.coordinate_from_string(one)) for one in (first, last or first)
    )
    index = openpyxl.utils.cell.column_index_from_string
    letters = [column_name(n - 1) for n in range(index(columns), index(last_column) + 1)]
    values = [cells[f"{sheet}!{letter}{row}"] for letter in letters]
    return np.array([[schedula.EMPTY if v is None else v for v in values]], object)


def by_libreoffice(path, rows):
    office = shutil.which("soffice")
    if office is None:
        pytest.skip("no LibreOffice here")
    book = openpyxl.load_workbook(path)
    for number, row in enumerate(rows, start=2):
        for column, value in enumerate(row.values(), start=1):
            book["decide"].cell(number, column, value)
    filled = path.with_name("filled.xlsx")
    book.save(filled)
    profile = f"-env:UserInstallation=file://{path.parent}/profile"
    subprocess.run(
        [
            office,
            profile,
            "--headless",
            "--convert-to",
            "xlsx:Calc MS Excel 2007 XML",
            "--outdir",
            path.parent / "out",
            filled,
        ],
        capture_output=True,
        check=True,
    )
    done = openpyxl.load_workbook(path.parent / "out" / "filled.xlsx", data_only=True)["decide"]
    column = len(rows[0]) + 1
    found = [done.cell(number, column).value for number in range(2, len(rows) + 2)]
    assert done.cell(len(rows) + 2, column).value in (None, "")  # nothing is said of no row
    return [None if action == "#N/A" else str(action) for action in found]


@pytest.mark.parametrize("run", [by_formulas, by_libreoffice])
@pytest.mark.parametrize("missing", ["indicator", "error"])
@pytest.mark.parametrize("rules", [{}, {"others": {"ward": "a"}}], ids=["listed", "pooled"])
def test_a_workbook_decides_every_row_as_the_policy_does(
    run, missing, rules, tmp_path, monkeypatch
):
    monkeypatch.setattr(excel_workbook, "N_ROWS", len(SPREADSHEET_ROWS) + 1)
    for kind in ("tree",) if rules else SPREADSHEET_KINDS:
        policy = policies_of(encoding_of(missing, **rules))[kind]
        expected = expected_of(policy, SPREADSHEET_ROWS, tmp_path)
        (tmp_path / kind).mkdir()
        found = run(policy.export(tmp_path / kind / "policy.xlsx"), SPREADSHEET_ROWS)
        rows = zip(SPREADSHEET_ROWS, expected, found, strict=True)
        wrong = [(row, e, f) for row, e, f in rows if e != f]
        assert not wrong, (kind, len(wrong), wrong[:3])


def test_labels_and_thresholds_are_kept_to_the_last_digit(tmp_path):
    """A number within a formula would be cut off after 15 digits."""
    book = openpyxl.load_workbook(
        policies_of(encoding_of("error"))["tree"].export(tmp_path / "p.xlsx")
    )
    kept = [cell.value for line in book["numbers"] for cell in line]
    assert CUT in kept
    formulas = [cell.value for line in book["working"] for cell in line] + [
        book["decide"]["E2"].value
    ]
    assert not any("0.3" in str(formula) for formula in formulas)


def test_a_rule_that_leaves_terms_out_is_found_on_rows_around_the_knots(tmp_path):
    class Straight(LinearPolicy):
        def written_in(self, target):
            columns = list(zip(self.feature_names, target.features(), strict=True))
            self.terms.written_in(target, self.n_used)
            sums = target.weighted_sums(self.score_names, columns, self.parameters[:, [0, -1]])
            return target.largest(dict(enumerate(sums)))

    terms = Terms(Basis(kind="hinges", knots={"age": (40, 50, 60)}), ("age",))
    parameters = np.array([[0.0, 0, 2.0, -4.0, -1.0], [0.0, 0, 0, 0, 0]])  # yes from 45 to 55
    policy = Straight(parameters, ("yes", "no"), ("age",), terms=terms)
    with pytest.raises(PolicyError, match="made-up rows differently"):
        policy.export(tmp_path / "policy.sql")


# --- what is written, and what is refused ---------------------------------------------------------


def test_ties_are_among_the_rows():
    """Without them the tests above would not see a tie that goes to another action."""
    for kind in ("ties", "pairwise"):
        policy = policies_of(encoding_of("drop"))[kind]
        grid = itertools.product((CUT, 0.3, -1.5, 2.0, 0.0), (1.0,), *[(0, 1)] * 4)
        best = np.sort(policy.scores(list(grid)), axis=1)
        assert np.mean(best[:, -1] == best[:, -2]) > 0.02


@pytest.mark.parametrize("ending", ["sql", "py", "xlsx", "onnx"])
def test_the_same_policy_gives_the_same_bytes(ending, tmp_path):
    if ending == "onnx":
        pytest.importorskip("onnx")
    policy = policies_of(encoding_of("indicator"))["pairwise"]
    first, second = (policy.export(tmp_path / f"{name}.{ending}") for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_kind_that_decides_differently_from_what_it_writes_is_refused(tmp_path):
    class Smallest(LinearPolicy):
        def scores(self, contexts):
            return -self.linear(contexts)

    policy = Smallest(np.array([[1.0, 0.0], [0.0, 0.1]]), ("a", "b"), ("x",))
    with pytest.raises(PolicyError, match=r"100% of made-up rows.*written_in"):
        policy.export(tmp_path / "policy.sql")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("policy.txt", {}, r"policy.txt: expected a name that ends in \.sql, \.py"),
        ("policy.sql", {"to": "sas"}, "to: expected one of 'sql', 'python', .* came 'sas'"),
        ("policy.sql", {"column": "age"}, r"reads a column 'age'; choose another .*--column"),
        ("policy.sql", {"columns": {"age": "ward"}}, "columns: named more than once: 'ward'"),
        ("", {"to": "sql"}, "is a folder; name a file"),
    ],
)
def test_what_cannot_be_exported_is_an_error_in_words(name, options, error, tmp_path):
    policy = policies_of(encoding_of("error"))["tree"]
    with pytest.raises(OptionError, match=error):
        policy.export(tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_a_name_that_could_break_out_of_a_comment_is_refused(tmp_path):
    policy = constant_policy("go\n; DROP TABLE rows", ("stay", "go\n; DROP TABLE rows"), ("x",))
    with pytest.raises(PolicyError, match="line break or another control"):
        policy.export(tmp_path / "policy.sql")


def test_without_onnx_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(OptionError, match=r"pip install 'fedopl\[onnx\]'"):
        policies_of(encoding_of("error"))["tree"].export(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
