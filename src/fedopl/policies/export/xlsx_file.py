"""Workbooks as .xlsx files, with sheets of numbers, text and formulas only."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><fonts count="1"><font/></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill>'
    '<fill><patternFill patternType="gray125"/></fill></fills>'
    '<borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs>'
    '<cellXfs count="2"><xf xfId="0"/><xf numFmtId="49" xfId="0" applyNumberFormat="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles>'
    "</styleSheet>"
)
_TEXT_STYLE = 1  # what is typed there stays text: 007 is not made 7


@dataclass(frozen=True)
class Formula:
    """A formula, without its leading sign."""

    text: str


SheetCell = float | str | Formula


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Rows of cells, and the positions of the text columns, counted from 0."""

    rows: Sequence[Sequence[SheetCell]]
    text_columns: Sequence[int] = field(default=())


def column_name(place: int) -> str:
    """The letters of a column: A for 0, Z for 25, AA for 26."""
    name = ""
    while place >= 0:
        place, letter = place // 26 - 1, place % 26
        name = chr(ord("A") + letter) + name
    return name


def xlsx_file(sheets: Mapping[str, Sheet]) -> bytes:
    """The file, the same bytes for the same sheets; formulas are computed when it is opened."""
    numbers = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{_TYPE}.styles+xml"/>'
        + "".join(
            f'<Override PartName="/xl/sheet{n}.xml" ContentType="{_TYPE}.worksheet+xml"/>'
            for n in numbers
        )
        + "</Types>",
        "_rels/.rels": _relationships({"rId1": ("officeDocument", "xl/workbook.xml")}),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(
            f'<sheet name="{escape(name)}" sheetId="{n}" r:id="rId{n}"/>'
            for n, name in zip(numbers, sheets, strict=True)
        )
        + '</sheets><calcPr fullCalcOnLoad="1"/></workbook>',
        "xl/_rels/workbook.xml.rels": _relationships(
            {f"rId{n}": ("worksheet", f"sheet{n}.xml") for n in numbers}
            | {f"rId{len(sheets) + 1}": ("styles", "styles.xml")}
        ),
        "xl/styles.xml": _STYLES,
        **{
            f"xl/sheet{n}.xml": _sheet(sheet)
            for n, sheet in zip(numbers, sheets.values(), strict=True)
        },
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            # Without a time of day: the same policy gives the same bytes.
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, f'<?xml version="1.0" encoding="UTF-8"?>\n{text}')
    return file.getvalue()


def _relationships(found: Mapping[str, tuple[str, str]]) -> str:
    lines = "".join(
        f'<Relationship Id="{name}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for name, (kind, target) in found.items()
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{lines}</Relationships>'


def _sheet(sheet: Sheet) -> str:
    columns = "".join(
        f'<col min="{place + 1}" max="{place + 1}" width="16" style="{_TEXT_STYLE}"/>'
        for place in sheet.text_columns
    )
    rows = "".join(
        f'<row r="{row}">{"".join(_cell(c, f"{column_name(n)}{row}") for n, c in enumerate(cells))}'
        "</row>"
        for row, cells in enumerate(sheet.rows, start=1)
    )
    styled = f"<cols>{columns}</cols>" if columns else ""
    return f'<worksheet xmlns="{_MAIN}">{styled}<sheetData>{rows}</sheetData></worksheet>'


def _cell(cell: SheetCell, place: str) -> str:
    if isinstance(cell, Formula):
        return f'<c r="{place}"><f>{escape(cell.text)}</f></c>'
    if isinstance(cell, str):
        text = f'<is><t xml:space="preserve">{escape(cell)}</t></is>'
        return f'<c r="{place}" t="inlineStr">{text}</c>' if cell else ""
    return f'<c r="{place}"><v>{cell!r}</v></c>'
