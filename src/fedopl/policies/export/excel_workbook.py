"""A policy as a workbook: users fill in or paste rows, and formulas give the action to take.

Workbooks are .xlsx files, with sheets of numbers, text and formulas only.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from fedopl.base.arrays import FloatArray
from fedopl.policies.export.target import Inputs, Target, WrittenRule, form, header_lines

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


# The number of rows with formulas; users can copy the last one further down.
N_ROWS = 1000
_COMPARING = (
    f"Fill in the sheet 'decide', or paste rows there. The first {N_ROWS:,} rows have formulas; "
    "for more, draw those of the last row of 'decide' and of 'working' further down. A row that "
    "cannot be decided shows #N/A. An empty cell is missing. Spreadsheets compare numbers by about "
    "their first 15 digits."
)
# Stands for the row's own number, since all rows have the same formulas.
ROW = "{row}"


def excel_workbook(rule: WrittenRule, inputs: Inputs) -> bytes:
    """The file: sheets with input rows, working columns, the policy's numbers, and words."""
    target = _Excel(inputs)
    decided = target.guarded(rule(target))
    columns = inputs.encoding.feature_columns
    names = [inputs.name(column) for column in columns]
    places = range(2, N_ROWS + 2)
    empty: list[SheetCell] = [""] * len(names)
    sheets = {
        "decide": Sheet(
            rows=[[*names, inputs.column], *([*empty, _at(decided, row)] for row in places)],
            text_columns=range(len(inputs.encoding.numeric), len(columns)),
        ),
        "working": Sheet(
            rows=[
                [header for header, _ in target.working],
                *([_at(formula, row) for _, formula in target.working] for row in places),
            ]
        ),
        "numbers": Sheet(rows=target.numbers),
        "about": Sheet(rows=[[line] for line in header_lines(inputs, _COMPARING)]),
    }
    return xlsx_file(sheets)


def _at(text: str, row: int) -> Formula:
    return Formula(text.replace(ROW, str(row)))


class _Excel(Target[str]):
    """Terms are formulas; what is computed once has a column in the sheet 'working'.

    Numbers and labels stand in cells of the sheet 'numbers', since a number inside a formula would
    lose its last digits.
    """

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.working: list[tuple[str, str]] = []  # headers and formulas
        self.numbers: list[list[SheetCell]] = []
        self._text_of = {
            column: self._step(f"{column}, as text", self._as_text(self._cell(column)))
            for column in inputs.encoding.categorical
        }

    def guarded(self, decided: str) -> str:
        """The action; #N/A if the policy cannot decide, and nothing in an empty row."""
        columns = self.inputs.encoding.feature_columns
        known = self._steps([f"{c}, is known" for c in columns], [self._known(c) for c in columns])
        cells = [self._cell(column) for column in columns]
        return f'IF(COUNTA({_range(cells)})=0,"",IF(AND({_range(known)}),{decided},NA()))'

    negated = form("NOT({})")
    both = form("AND({},{})")
    either = form("OR({},{})")
    flag = form("IF({},1,0)")
    product = form("{}*{}")
    choice = form("IF({},{},{})")
    _as_text = form('IF(ISLOGICAL({0}),IF({0},"true","false"),{0}&"")')

    def number(self, column: str) -> str:
        return f"N({self._cell(column)})"  # nothing is 0, and a truth value 1 or 0

    def is_missing(self, column: str) -> str:
        if column in self.inputs.encoding.numeric:
            return f"ISBLANK({self._cell(column)})"
        return self._is_one_of(column, f"{column}, missing", self.inputs.gaps(column))

    def is_level(self, column: str, level: str) -> str:
        others = self.inputs.not_other(column, level)
        if others is not None:
            return self.negated(self._is_one_of(column, f"{column} is not {level}", others))
        spelled = self.inputs.spellings(column)[level]
        return self._is_one_of(column, f"{column} is {level}", spelled)

    def at_most(self, number: str, cut: float) -> str:
        return f"{number}<={self._constants('threshold', [cut])}"

    def at_least(self, number: str, cut: float) -> str:
        return f"{number}>={self._constants('threshold', [cut])}"

    def unless(self, condition: str, number: str) -> str:
        return f"IF({condition},{self._constants('below every score', [self.lowest])},{number})"

    def between(self, number: str, low: float, high: float) -> str:
        lowest, highest = (self._constants("limit", [end]) for end in (low, high))
        return f"MIN(MAX({number},{lowest}),{highest})"

    def in_units(self, number: str, middle: float, unit: float) -> str:
        subtracted = self._constants("middle", [middle])
        return f"({number}-{subtracted})/{self._constants('unit', [unit])}"

    def above(self, number: str, knot: float) -> str:
        return f"MAX({number}-{self._constants('knot', [knot])},0)"

    def wave(self, parts: Sequence[tuple[float, str]], phase: float) -> str:
        own = [self._constants("frequency", [frequency]) for frequency, _ in parts]
        angle = [f"{constant}*{number}" for constant, (_, number) in zip(own, parts, strict=True)]
        return f"COS({'+'.join(angle)}+{self._constants('phase', [phase])})"

    def kept(self, what: str, names: Sequence[str], numbers: Sequence[str]) -> list[str]:
        return self._steps([f"{name}, {what}" for name in names], numbers)

    def weighted_sums(
        self, names: Sequence[str], columns: Sequence[tuple[str, str]], parameters: FloatArray
    ) -> list[str]:
        features = _range([self._step(*column) for column in columns])
        sums = []
        for name, (*weights, constant) in zip(names, parameters.tolist(), strict=True):
            own = self._constants(f"weights for {name}", weights)
            added = self._constants(f"constant for {name}", [constant])
            sums.append(f"SUMPRODUCT({features},{own})+{added}")
        return self._steps([f"score of {name}" for name in names], sums)

    def less_length(self, number: str, parts: Sequence[str]) -> str:
        if not parts:
            return number
        most = self.largest_squared
        bounded = [self.between(part, -most, most) for part in parts]
        beside = _range(self._steps(["doubt, within bounds"] * len(parts), bounded))
        return f"{number}-SQRT(SUMSQ({beside}))"

    def counts(self, names: Sequence[str], conditions: Sequence[Sequence[str]]) -> list[str]:
        sums = ["+".join(map(self.flag, own)) for own in conditions]
        return self._steps([f"wins of {name}" for name in names], sums)

    def action(self, code: int) -> str:
        return self._constants("action", [self.inputs.actions[code]])

    def largest(self, scores: Mapping[int, str]) -> str:
        codes = sorted(scores)
        names = [self.inputs.actions[code] for code in codes]
        headers = [f"{name}, compared" for name in names]
        # Placed side by side, whatever lies between the scores; MATCH finds the first.
        compared = _range(self._steps(headers, [scores[code] for code in codes]))
        actions = self._constants("actions", names)
        return f"INDEX({actions},MATCH(MAX({compared}),{compared},0))"

    def _known(self, column: str) -> str:
        """Whether the policy can decide with the value in a column."""
        cell = self._cell(column)
        if column in self.inputs.encoding.numeric:
            known = f"ISNUMBER({cell}),ISLOGICAL({cell})"
        elif column in self.inputs.encoding.others:
            known = self.negated(self.is_missing(column))
        else:
            spelled = [text for own in self.inputs.spellings(column).values() for text in own]
            known = self._is_one_of(column, f"labels of {column}", spelled)
        missing = f",{self.is_missing(column)}" if self.inputs.marked else ""
        return f"OR({known}{missing})"

    def _is_one_of(self, column: str, what: str, texts: Sequence[str]) -> str:
        """Exact comparison: in a spreadsheet 'A' equals 'a', and only EXACT distinguishes them."""
        text = self._text_of[column]
        shown = [spelled for spelled in texts if spelled]
        empty = [f"LEN({text})=0"] if len(shown) < len(texts) else []
        listed = [f"SUMPRODUCT(EXACT({text},{self._constants(what, shown)})*1)>0"] if shown else []
        return f"OR({','.join([*listed, *empty])})"

    def _cell(self, column: str) -> str:
        place = self.inputs.encoding.feature_columns.index(column)
        return f"decide!${column_name(place)}{ROW}"

    def _steps(self, headers: Sequence[str], formulas: Sequence[str]) -> list[str]:
        return [self._step(*one) for one in zip(headers, formulas, strict=True)]

    def _step(self, header: str, formula: str) -> str:
        self.working.append((header, formula))
        return f"working!${column_name(len(self.working) - 1)}{ROW}"

    def _constants(self, what: str, values: Sequence[float | str]) -> str:
        """The cells that hold these numbers or texts, side by side."""
        line: list[SheetCell] = [what, *values]
        if line not in self.numbers:
            self.numbers.append(line)
        row = self.numbers.index(line) + 1
        first, last = (f"numbers!${column_name(n)}${row}" for n in (1, len(values)))
        return _range([first, last]) if len(values) > 1 else first


def _range(cells: Sequence[str]) -> str:
    """The range from the first cell to the last; the cells lie side by side."""
    return f"{cells[0]}:{cells[-1].partition('!')[2]}" if len(cells) > 1 else cells[0]
