"""A policy as one Python file that needs nothing but the standard library."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pprint import pformat

from fedopl.base.arrays import FloatArray
from fedopl.policies.export.target import Inputs, Target, WrittenRule, form, header_lines, one_line

_COMPARING = (
    "Call decide(row) with a dictionary, or run `python FILE rows.csv > decided.csv`. None, NaN "
    "and an empty text are missing."
)
# The part that is the same for every policy: how numbers, labels and gaps are recognised.
READING = '''
_NUMBER = re.compile(r"[+-]?(\\d+\\.?\\d*|\\.\\d+)([eE][+-]?\\d+)?")
_WORDS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}


class _Undecided(Exception):
    """A value that the policy cannot decide with."""


def _number(value):
    """A finite number, or None where there is no value."""
    if isinstance(value, str):
        if value in NO_NUMBER:
            return None
        text = value.strip(" \\t")
        if text in _WORDS:
            return _WORDS[text]
        if not _NUMBER.fullmatch(text):
            raise _Undecided
        value = text
    if value is None or value != value:
        return None
    number = float(value)
    if math.isinf(number):
        raise _Undecided
    return number


def _label(value, levels, gaps, other):
    """One of the policy's labels, or None where there is no value."""
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float) and value.is_integer():
        text = str(int(value))
    else:
        text = str(value)
    if text in gaps:
        return None
    if text not in levels and other is None:
        raise _Undecided
    return levels.get(text, other)


def _read(row):
    """Every column that the policy reads, by name."""
    columns = {name: _number(row[name]) for name in NUMBERS}
    columns |= {name: _label(row[name], *known) for name, known in LABELS.items()}
    if not MISSING_IS_A_VALUE and None in columns.values():
        raise _Undecided
    return columns


def decide(row):
    """The action to take in a row, a dictionary by column; None where that cannot be decided."""
    try:
        return _decided(_read(row))
    except _Undecided:
        return None
'''
RUNNING = '''

def main(path):
    """Copy a CSV file to the standard output, with a last column that names the action."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        lacking = [name for name in (*NUMBERS, *LABELS) if name not in rows.fieldnames]
        if lacking:
            sys.exit(f"{path}: has no column {', '.join(lacking)}")
        writer = csv.DictWriter(sys.stdout, [*rows.fieldnames, COLUMN], lineterminator="\\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, COLUMN: decide(row)})


if __name__ == "__main__":
    main(sys.argv[1])
'''
# Spellings of "no value" in columns of numbers: those of the reader of CSV files.
NO_NUMBER = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)


def python_module(rule: WrittenRule, inputs: Inputs) -> bytes:
    """The file; it has a function `decide` and can be run on a CSV file."""
    target = _Python(inputs)
    decided = rule(target)
    header = "\n".join(
        line for text in header_lines(inputs, _COMPARING) for line in textwrap.wrap(text, 97)
    )
    labels = {
        inputs.name(column): (
            {text: level for level, own in inputs.spellings(column).items() for text in own},
            inputs.gaps(column),
            inputs.encoding.others.get(column),
        )
        for column in inputs.encoding.categorical
    }
    constants = {
        "ACTIONS": inputs.actions,
        "COLUMN": inputs.column,
        "MISSING_IS_A_VALUE": inputs.marked,
        "NUMBERS": tuple(map(inputs.name, inputs.encoding.numeric)),
        "NO_NUMBER": NO_NUMBER,
        "LABELS": labels,
        **target.constants,
    }
    parts = [
        f"{header!r}" if '"""' in header or "\\" in header else f'r"""{header}\n"""',
        "\n\nimport csv\nimport math\nimport re\nimport sys\n\n",
        *(
            f"{name} = {pformat(value, width=97, compact=True)}\n"
            for name, value in constants.items()
        ),
        READING,
        "\n\ndef _decided(column):\n",
        *(f"    {line}\n" for line in target.statements),
        textwrap.indent(f"return {decided}\n", "    "),
        RUNNING,
    ]
    return "".join(parts).encode()


class _Python(Target[str]):
    """Terms are expressions; what is computed once is a statement before them."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.statements: list[str] = []
        self.constants: dict[str, object] = {}

    def number(self, column: str) -> str:
        cell = self._cell(column)
        return f"({cell} or 0.0)" if self.inputs.marked else cell

    def is_missing(self, column: str) -> str:
        return f"{self._cell(column)} is None"

    def is_level(self, column: str, level: str) -> str:
        return f"{self._cell(column)} == {level!r}"

    at_most = form("{} <= {}")
    at_least = form("{} >= {}")
    negated = form("not ({})")
    both = form("({} and {})")
    either = form("({} or {})")
    unless = form(f"({Target.lowest!r} if {{}} else {{}})")
    flag = form("float({})")
    between = form("min(max({}, {}), {})")
    in_units = form("({} - {}) / {}")
    above = form("max({} - {}, 0.0)")
    product = form("{} * {}")

    def wave(self, parts: Sequence[tuple[float, str]], phase: float) -> str:
        angle = " + ".join(f"{frequency!r} * {number}" for frequency, number in parts)
        return f"math.cos({angle} + {phase!r})"

    def kept(self, what: str, names: Sequence[str], numbers: Sequence[str]) -> list[str]:
        self._list(what, zip(names, numbers, strict=True))
        return [f"{what}[{place}]" for place in range(len(numbers))]

    def weighted_sums(
        self, names: Sequence[str], columns: Sequence[tuple[str, str]], parameters: FloatArray
    ) -> list[str]:
        again = "later_" if "WEIGHTS" in self.constants else ""  # sums of what sums are made of
        weights, features, scores = f"{again}weights".upper(), f"{again}features", f"{again}scores"
        self.constants[weights] = tuple(map(tuple, parameters.tolist()))
        self._list(features, [*columns, ("the constant, which is added as it is", "1.0")])
        self.statements += [
            f"{scores} = [sum(w * x for w, x in zip(own, {features}) if w) for own in {weights}]"
        ]
        return [f"{scores}[{place}]" for place in range(len(names))]

    def rectified_sums(
        self, layer: int, columns: Sequence[tuple[str, str]], parameters: FloatArray
    ) -> list[str]:
        weights, inputs, units = f"LAYER_{layer}", f"inputs_{layer}", f"units_{layer}"
        self.constants[weights] = tuple(map(tuple, parameters.tolist()))
        self._list(inputs, [*columns, ("the constant, which is added as it is", "1.0")])
        self.statements += [
            f"{units} = [max(sum(w * x for w, x in zip(own, {inputs})), 0.0) for own in {weights}]"
        ]
        return [f"{units}[{place}]" for place in range(len(parameters))]

    def less_length(self, number: str, parts: Sequence[str]) -> str:
        most = self.largest_squared
        bounded = [self.between(part, -most, most) for part in parts]
        return f"{number} - math.hypot({', '.join(bounded)})"

    def counts(self, names: Sequence[str], conditions: Sequence[Sequence[str]]) -> list[str]:
        self.statements += [
            "wins = [",
            *(f"    {' + '.join(f'({one})' for one in own)}," for own in conditions),
            "]",
        ]
        return [f"wins[{place}]" for place in range(len(names))]

    def action(self, code: int) -> str:
        return f"{self.inputs.actions[code]!r}"

    def choice(self, condition: str, yes: str, no: str) -> str:
        yes, no = (text.replace("\n", "\n    ") for text in (yes, no))
        return f"(\n    {yes}\n    if {condition}\n    else {no}\n)"

    def largest(self, scores: Mapping[int, str]) -> str:
        # max returns the first of the largest.
        listed = ", ".join(f"({scores[code]}, {code})" for code in sorted(scores))
        return f"ACTIONS[max([{listed}], key=lambda one: one[0])[1]]"

    def _list(self, name: str, numbers: Iterable[tuple[str, str]]) -> None:
        lines = (f"    {number},  # {one_line(what)}" for what, number in numbers)
        self.statements += [f"{name} = (", *lines, ")"]

    def _cell(self, column: str) -> str:
        return f"column[{self.inputs.name(column)!r}]"
