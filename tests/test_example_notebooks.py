"""Notebooks of examples/ run, and print what they show."""

import json

import notebooks
import pytest

from test_docs import fits

pytest.importorskip("pandas", reason="notebooks need pandas")


@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    shown = [
        "".join(line for output in cell["outputs"] for line in output["text"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    # If not: python experiments/notebooks.py
    for kept, came in zip(shown, notebooks.printed(notebook, path.name), strict=True):
        pairs = zip(kept.splitlines(), came.splitlines(), strict=True)
        assert [pair for pair in pairs if not fits(*pair)] == []


def test_there_is_something_to_see_in_each():
    assert len(notebooks.notebooks()) == 3
    for path in notebooks.notebooks():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert cells[0]["source"][0].startswith("# ")
        assert sum(bool(cell.get("outputs")) for cell in cells) >= 3
