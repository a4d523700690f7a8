"""Build the site from the pages of the repository, without a network.

    python website/build_site.py [build/docs]

The pages are copied as they are, in the folders they lie in; the API reference is made from
docstrings and notebooks become pages. A link, an anchor or a name that leads nowhere is an error.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import api_page

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FILES = ("CITATION.cff", "benchmarks/README.md")
PICTURES = ("docs/figures/*.*", "docs/*.svg", "benchmarks/results/*.svg")


def gather(folder: Path) -> None:
    """Put all pages, and what they show, into this folder."""
    notebooks = sorted(ROOT.glob("examples/*.ipynb"))
    pages = [ROOT / name for name in (*PAGES, *FILES)] + sorted(ROOT.glob("docs/*.md"))
    for path in pages:
        # The page that a notebook becomes, where one links to the notebook.
        text = path.read_text(encoding="utf-8").replace(".ipynb)", ".md)")
        _write(folder / path.relative_to(ROOT), text)
    for pattern in PICTURES:
        for path in ROOT.glob(pattern):
            _write(folder / path.relative_to(ROOT), path.read_bytes())
    for path in notebooks:
        _write(folder / "examples" / f"{path.stem}.md", notebook_page(path))
    _write(folder / "docs" / "api.md", api_page.text())
    for name in ("style.css", "reachable.js"):
        _write(folder / name, (HERE / name).read_text(encoding="utf-8"))


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text, its code, and what the code printed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace(".ipynb)", ".md)"))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            shown = "".join(output.get("text") or output["data"]["text/plain"])
            parts.append(f"```text\n{shown.rstrip()}\n```")
    source_name = f"examples/{path.name}"
    return "\n\n".join(
        [*parts, f"*This page is the notebook `{source_name}` of the repository.*\n"]
    )


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)


def build(folder: Path) -> Path:
    """The site's own folder, below this one, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    gather(folder / "pages")
    # Its docstrings are read.
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "zensical.toml", folder)
    program = Path(sys.executable).with_name("zensical")
    command = [str(program), "build", "--strict", "--config-file", "zensical.toml"]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603
    return folder / "html"


if __name__ == "__main__":
    made = build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "docs"))
    print(f"{made}; to read it: python -m http.server --directory {made}")
