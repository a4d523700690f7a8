"""Text tables: how cells are separated and spelled, and how to recognise other formats."""

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedopl.base.errors import DataError, OptionError

# How many bytes of a file are inspected, and how many of its first lines.
LOOKED_AT, FIRST_LINES = 1 << 16, 20
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# The first bytes of files that are not text, and what to do about each.
SIGNATURES = {
    b"PK\x03\x04": "is a zip archive or an Excel workbook; unpack it, or name it .xlsx",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook; name it .xls",
    b"PAR1": "is a Parquet file; name it .parquet",
    b"ARROW1": "is a Feather file; name it .feather",
    b"BZh": "is compressed with bzip2; unpack it, or compress it with gzip",
    b"\xfd7zXZ": "is compressed with xz; unpack it, or compress it with gzip",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it, or compress it with gzip",
}
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """The format of a file, as far as its ending does not determine it."""

    encoding: str = "utf-8"
    delimiter: str | None = None  # between cells; by default a comma, or a tab in .tsv
    decimal: str = "."
    sheet: str | None = None  # of a workbook

    def __post_init__(self) -> None:
        between = self.delimiter
        if between is not None and (len(between) != 1 or between.isalnum() or between in '"\r\n'):
            raise OptionError(f"delimiter: expected one sign, such as ';', came {between!r}")
        if self.decimal not in (".", ","):
            raise OptionError(f"decimal: expected '.' or ',', came {self.decimal!r}")
        if self.decimal == between:
            raise OptionError(f"decimal: '{between}' cannot also be the delimiter")

    def between(self, path: Path) -> str:
        """The sign that separates the cells of this file."""
        is_tabbed = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
        return self.delimiter or ("\t" if is_tabbed else ",")


def check_is_text(path: Path, name: str, text: FileFormat) -> None:
    """Raise an error if the first bytes are not text of this encoding, and say what they seem."""
    with path.open("rb") as file:
        start = file.read(LOOKED_AT)
    is_named_zipped = path.suffix.lower() == ".gz"
    if start.startswith(GZIP) != is_named_zipped:
        what = "is not compressed" if is_named_zipped else "is compressed with gzip"
        better = path.name[:-3] if is_named_zipped else f"{path.name}.gz"
        raise DataError(f"{name}: {what}; rename it to {better}")
    for signature, what in SIGNATURES.items():
        if start.startswith(signature):
            raise DataError(f"{name}: {what}")
    wide = _wide_encoding(_unpacked(path))
    if wide and not text.encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32", "u16")):
        raise DataError(f"{name}: {not_text(path, text)}")


def _unpacked(path: Path) -> bytes:
    """The first bytes of the text; empty if an archive is damaged."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            return file.read(LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return b""


def _wide_encoding(start: bytes) -> str:
    """The encoding with two or four bytes per letter that this text seems to have, or ""."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if start.count(0) * 4 > len(start) > 3:
        return "utf-16-be" if start[0] == 0 else "utf-16-le"
    return ""


def not_text(path: Path, text: FileFormat) -> str:
    """A message that a file has another encoding, and probably which."""
    start = _unpacked(path)
    likely = _wide_encoding(start) or _narrow_encoding(start, text)
    if likely == text.encoding:
        return f"is not {text.encoding} text all through; it may be damaged"
    return f'is not {text.encoding} text; say its encoding, probably encoding = "{likely}"'


def _narrow_encoding(start: bytes, text: FileFormat) -> str:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
        is_utf_8 = not text.encoding.lower().startswith(("utf-8", "utf8"))  # it was already tried
    except UnicodeDecodeError:
        is_utf_8 = False
    # Latin-1 has control characters where Windows has quotation marks and dashes.
    otherwise = "windows-1252" if any(0x80 <= byte < 0xA0 for byte in start) else "latin-1"
    return "utf-8" if is_utf_8 else otherwise


def likely_format(path: Path) -> FileFormat:
    """The likely format of a text; the default unless something contradicts it."""
    start, usual = _unpacked(path), FileFormat()
    encoding = _wide_encoding(start) or _narrow_encoding(start, FileFormat(encoding="any"))
    lines = _first_lines(path, encoding)
    widths = {sign: _width(lines, sign) for sign in DELIMITERS}
    sign = max(widths, key=widths.__getitem__)
    other = None if sign == usual.between(path) or widths[sign] < 2 else sign
    between = other or usual.between(path)
    cells = [cell.strip() for row in csv.reader(lines, delimiter=between) for cell in row]
    commas, points = (
        sum(bool(re.fullmatch(rf"[+-]?\d+{mark}\d+", cell)) for cell in cells)
        for mark in (",", r"\.")
    )
    return FileFormat(encoding=encoding, delimiter=other, decimal="," if commas > points else ".")


def _first_lines(path: Path, encoding: str) -> list[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    start = _unpacked(path)
    lines = decoder.decode(start).splitlines()
    # The last line may be cut off at the end of the inspected bytes.
    return lines[: min(FIRST_LINES, len(lines) - (len(start) == LOOKED_AT))]


def other_delimiter(path: Path, text: FileFormat) -> str:
    """A message that another sign seems to separate cells; empty if first lines do not show it."""
    try:
        lines = _first_lines(path, text.encoding)
    except LookupError:
        return ""
    widths = {sign: _width(lines, sign) for sign in DELIMITERS}
    here, likely = text.between(path), max(widths, key=widths.__getitem__)
    if likely == here or widths[likely] < 2 or widths.get(here, 0) > 1:
        return ""
    sign = "\\t" if likely == "\t" else likely
    return f'cells seem to be separated by {DELIMITERS[likely]}: say delimiter = "{sign}"'


def _width(lines: Sequence[str], delimiter: str) -> int:
    """How many cells each line has with this delimiter; 0 if lines differ."""
    widths = {len(row) for row in csv.reader(lines, delimiter=delimiter) if row}
    return widths.pop() if len(widths) == 1 else 0
