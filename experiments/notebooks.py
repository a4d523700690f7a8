"""Run the notebooks of examples/ and write what they print into them.

python experiments/notebooks.py
"""

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "examples"


def notebooks() -> list[Path]:
    """All of them, in the order of their names."""
    return sorted(FOLDER.glob("*.ipynb"))


def printed(notebook: dict[str, Any], title: str) -> list[str]:
    """What each code cell prints, run in order in the current folder.

    As in a notebook, the value of a cell's last line is shown, too.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_printed_by("".join(cell["source"]), names, title) for cell in _code_cells(notebook)]


def _code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _printed_by(source: str, names: dict[str, Any], title: str) -> str:
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(ast.Module(body, []), title, "exec"), names)  # noqa: S102
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), title, "eval"), names)  # noqa: S307
            if shown is not None:
                print(shown)
    return out.getvalue()


def fill(path: Path) -> None:
    """Put what the notebook's cells print below them."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        outputs = printed(notebook, path.name)
    for count, (cell, text) in enumerate(zip(_code_cells(notebook), outputs, strict=True), 1):
        lines = text.splitlines(keepends=True)
        shown = {"output_type": "stream", "name": "stdout", "text": lines}
        cell |= {"execution_count": count, "outputs": [shown] if lines else []}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for found in notebooks():
        fill(found)
        print(os.path.relpath(found))
