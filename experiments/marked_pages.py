"""Pages of the docs with tables that scripts write between two marks."""

from pathlib import Path

from fedopl.base.errors import StorageError
from fedopl.base.files import write_atomically


def write_between(path: Path, mark: str, lines: list[str]) -> None:
    """Replace what stands between `<!-- mark -->` and `<!-- end of mark -->` in a text file."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    text = path.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise StorageError(f"{path}: has no {begin.strip()} … {end} to write between")
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    write_atomically(path, (before + begin + "\n".join([*lines, ""]) + end + after).encode())
