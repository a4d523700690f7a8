"""Makes README.md and the charts from results/*.json and the scripts' docstrings.

    python benchmarks/readme.py

A section is a script's docstring, its tables, and, if it has one, its constant READING. No script
is run or imported for it.
"""

import ast
import json
import string
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SECTIONS = {
    "peers": "Peers",
    "policies": "Policies",
    "budgets": "Budgets",
    "intervals": "Intervals",
    "privacy": "Differential privacy",
    "secure": "Adding up under masks",
    "stages": "Where the time goes",
    "sgd": "Stochastic steps",
    "kernels": "Ways to take a step",
    "scores": "Scores",
    "wide": "Many actions and features",
    "bending": "Effects that bend",
    "trees": "Trees",
    "grids": "Grids of trees",
    "clients": "Many clients",
    "crowds": "Very many clients",
    "plans": "Planned and measured costs",
    "grouped_plans": "Planned and measured costs in groups",
    "federation": "Federation",
    "memory": "Memory",
    "scale": "A client larger than its machine",
    "startup": "Start-up",
    "busy": "A busy machine",
    "transports": "Transports",
    "soak": "Two hundred clients, killed at random",
    "reproduction": "One figure of the paper",
}
CHARTS = {
    "peers": "Seconds and regret against the number of rows, for every peer",
    "clients": "Time and memory against the number of clients, with and without the federation",
    "crowds": "Time and memory against the number of very small clients",
    "memory": "Peak memory against the number of rows",
}
HEAD = """# Benchmarks

`make bench` makes every table and chart here, in an environment of its own, with each peer in one
of its own (`make peers`); a peer that cannot be installed is reported absent. Each section was made
by the commands it shows, the last of them on the machine it names. Read ratios, not seconds:
machines differ and are noisy, but what is compared ran on the same rows, in turns unless a section
says otherwise. Seconds are medians by
the clock, with least and most, on one thread where a section does not say otherwise. `results/` has
the numbers, `--quick` gives every script a try in seconds. This page is written by
`python benchmarks/readme.py`. What can be known without a clock, bytes and trips and passes, is in
[What things cost](../docs/performance.md).
"""


class _Cells(string.Formatter):
    """`{name:~3}` is a number with three significant digits and no exponent."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if not format_spec.startswith("~"):
            return super().format_field(value, format_spec)
        digits = int(format_spec[1:])
        if not value:
            return "0"
        magnitude = int(f"{abs(value):e}".partition("e")[2])
        return f"{value:,.{max(digits - 1 - magnitude, 0)}f}"


def cells_of(row: dict[str, Any], columns: list[dict[str, Any]]) -> list[str]:
    """A row as texts. Its note, if it has one, stands in the first cell that has no number."""
    cells, note = [], row.get("note", "")
    for column in columns:
        try:
            cells.append(_Cells().vformat(column["cell"], (), row))
        except KeyError:
            cells.append(note)
            note = ""
    return cells


def table_lines(table: dict[str, Any]) -> list[str]:
    """A table as Markdown."""
    columns = table["columns"]
    lines = [[column["title"] for column in columns]]
    lines += [cells_of(row, columns) for row in table["rows"]]
    rule = "|".join("---" if column["text"] else "---:" for column in columns)
    head, *body = (f"| {' | '.join(cells)} |" for cells in lines)
    return [head, f"|{rule}|", *body]


def made(result: dict[str, Any]) -> str:
    """When and where, in one line."""
    machine = result["machine"]
    packages = machine["packages"] | machine.get("peers", {})
    versions = ", ".join(
        f"{name} {what}" for name, what in packages.items() if not what.startswith("absent")
    )
    missing = "; ".join(
        f"{name} {what}" for name, what in packages.items() if what.startswith("absent")
    )
    noisy = machine["load"] > machine["cores"] / 2
    others = f" **Others worked on this machine, load {machine['load']}: noisy.**" if noisy else ""
    return (
        f"Made {result['date']}, {machine['cores']} cores, {machine['processor']}, "
        f"{machine['memory_gb']} GB, Python {machine['python']}, {machine['blas']}; {versions}."
        f"{f' {missing}.' if missing else ''}{others}"
    )


def words(script: Path) -> tuple[str, str]:
    """A script's docstring, and its reading of the results."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    reading = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "READING"
    ]
    return ast.get_docstring(tree) or "", "".join(reading).strip()


def section(name: str, result: dict[str, Any]) -> str:
    """One script's part of the page."""
    docstring, reading = words(HERE / f"{name}.py")
    parts = [f"## {SECTIONS[name]}", docstring, f"    {result['command']}", made(result)]
    if name in CHARTS:
        parts.append(f"![{CHARTS[name]}](results/{name}.svg)")
    parts += ["\n".join(table_lines(table)) for table in result["tables"]]
    return "\n\n".join([*parts, *([reading] if reading else [])]) + "\n"


def page(results: Path = RESULTS) -> str:
    """The whole page."""
    found = {name: results / f"{name}.json" for name in SECTIONS}
    sections = [
        section(name, json.loads(path.read_text(encoding="utf-8")))
        for name, path in found.items()
        if path.exists()
    ]
    return "\n".join([HEAD, *sections])


def main() -> None:
    """Write the page, and draw the charts."""
    from charts import draw_all

    draw_all()
    (HERE / "README.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
