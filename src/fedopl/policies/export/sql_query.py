"""A policy as one SQL query that adds a column with the action to take to a table."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from fedopl.base.arrays import FloatArray
from fedopl.policies.export.target import Inputs, Target, WrittenRule, form, header_lines, one_line

_COMPARING = (
    "Standard SQL, tried with SQLite and DuckDB. Labels have to be compared to the letter: where a "
    "database ignores case or trailing spaces, give the columns a binary collation. NULL is "
    "missing."
)
_LARGEST_DOUBLE = "1.7976931348623157e308"


def sql_query(rule: WrittenRule, inputs: Inputs) -> bytes:
    """The query; it returns every row of the table with one more column."""
    target = _Sql(inputs)
    decided = rule(target)
    known = "\n    AND ".join(map(target.known, inputs.encoding.feature_columns))
    lines = [
        *(
            f"-- {line}"
            for text in header_lines(inputs, _COMPARING)
            for line in textwrap.wrap(text, 97)
        ),
        "SELECT t.*,",
        f"  CASE WHEN {known}",
        f"  THEN {_indented(target.selected(decided), 2)}",
        f"  END AS {_quoted(inputs.column)}",
        f"FROM {_quoted(inputs.table)} AS t;",
    ]
    return ("\n".join(lines) + "\n").encode()


def _literal(number: float) -> str:
    """The number with an exponent, which makes it a double in most databases."""
    text = repr(number)
    return f"({text})" if "e" in text else f"({text}e0)"


class _Sql(Target[str]):
    """Terms are expressions; what is computed once is a column of a nested subquery."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self._layers: list[list[tuple[str, str, str]]] = []  # name, expression, what it is

    def known(self, column: str) -> str:
        """Whether the policy can decide with the value in a column."""
        cell = self._cell(column)
        if column in self.inputs.encoding.numeric:
            # SQLite also keeps text in columns of numbers: there it would not equal its own sum.
            known = f"{cell} + 0 = {cell} AND ABS({cell} + 0) <= {_LARGEST_DOUBLE}"
        elif column in self.inputs.encoding.others:
            known = self.negated(self.is_missing(column))
        else:
            spelled = self.inputs.spellings(column).values()
            known = self._in(column, [text for texts in spelled for text in texts])
        return f"({self.is_missing(column)} OR {known})" if self.inputs.marked else f"({known})"

    def selected(self, decided: str) -> str:
        """The action, selected from one nested subquery per layer."""
        if not self._layers:
            return decided
        source = ""
        for depth, layer in enumerate(self._layers):
            above = f"s{depth - 1}.*,\n" if depth else ""
            columns = ",\n".join(
                f"/* {one_line(what).replace('*/', '* /')} */ {expression} AS {name}"
                for name, expression, what in layer
            )
            inner = f" FROM (\n{textwrap.indent(source, '  ')}\n) AS s{depth - 1}" if depth else ""
            source = f"SELECT {above}{columns}{inner}"
        return f"(SELECT {decided}\nFROM (\n{textwrap.indent(source, '  ')}\n) AS decided)"

    def number(self, column: str) -> str:
        number = f"CAST({self._cell(column)} AS DOUBLE PRECISION)"
        return f"COALESCE({number}, 0)" if self.inputs.marked else number

    def is_missing(self, column: str) -> str:
        empty = f"{self._cell(column)} IS NULL"
        if column in self.inputs.encoding.numeric:
            return empty
        return f"({empty} OR {self._in(column, self.inputs.gaps(column))})"

    def is_level(self, column: str, level: str) -> str:
        others = self.inputs.not_other(column, level)
        if others is not None:
            return f"({self._cell(column)} IS NOT NULL AND NOT {self._in(column, others)})"
        return self._in(column, self.inputs.spellings(column)[level])

    at_most = form("{} <= {}", _literal)
    at_least = form("{} >= {}", _literal)
    negated = form("CASE WHEN {} THEN 0 ELSE 1 END = 1")  # unknown counts as false
    both = form("({} AND {})")
    either = form("({} OR {})")
    unless = form(f"CASE WHEN {{}} THEN {_literal(Target.lowest)} ELSE {{}} END")
    flag = form("CASE WHEN {} THEN 1 ELSE 0 END")
    # Not LEAST and GREATEST, which SQLite does not know.
    between = form("CASE WHEN {0} < {1} THEN {1} WHEN {0} > {2} THEN {2} ELSE {0} END", _literal)
    in_units = form("({} - {}) / {}", _literal)
    above = form("CASE WHEN {0} > {1} THEN {0} - {1} ELSE 0 END", _literal)
    product = form("{} * {}")

    def wave(self, parts: Sequence[tuple[float, str]], phase: float) -> str:
        angle = " + ".join(f"{_literal(frequency)} * {number}" for frequency, number in parts)
        return f"COS({angle} + {_literal(phase)})"

    def kept(self, what: str, names: Sequence[str], numbers: Sequence[str]) -> list[str]:
        taken = {step for layer in self._layers for step, *_ in layer}
        what = f"later_{what}" if f"{what}_1" in taken else what  # sums of what sums are made of
        steps = [f"{what}_{place}" for place in range(1, len(numbers) + 1)]
        self._layers.append(list(zip(steps, numbers, names, strict=True)))
        return steps

    def weighted_sums(
        self, names: Sequence[str], columns: Sequence[tuple[str, str]], parameters: FloatArray
    ) -> list[str]:
        names_of, terms = zip(*columns, strict=True)
        features = self.kept("feature", names_of, terms)
        sums = []
        for *weights, constant in parameters.tolist():
            parts = [f"{_literal(w)} * {x}" for w, x in zip(weights, features, strict=True) if w]
            sums.append(" + ".join([*parts, _literal(constant)]))
        return self.kept("score", names, sums)

    def less_length(self, number: str, parts: Sequence[str]) -> str:
        within = f"BETWEEN {_literal(-self.largest_squared)} AND {_literal(self.largest_squared)}"
        most = _literal(self.largest_squared**2)
        squares = [f"CASE WHEN {p} {within} THEN {p} * {p} ELSE {most} END" for p in parts]
        return f"{number} - SQRT({' + '.join(squares) or '0'})"

    def counts(self, names: Sequence[str], conditions: Sequence[Sequence[str]]) -> list[str]:
        return self.kept("wins", names, [" + ".join(map(self.flag, own)) for own in conditions])

    def action(self, code: int) -> str:
        return _text(self.inputs.actions[code])

    def choice(self, condition: str, yes: str, no: str) -> str:
        yes, no = _indented(yes, 2), _indented(no, 2)
        return f"CASE WHEN {condition}\n  THEN {yes}\n  ELSE {no} END"

    def largest(self, scores: Mapping[int, str]) -> str:
        # The first of the largest is at least all that follow, and no earlier one was taken.
        *others, last = sorted(scores)
        lines = []
        for code in others:
            least = [f"{scores[code]} >= {scores[b]}" for b in sorted(scores) if b > code]
            lines.append(f"WHEN {' AND '.join(least)} THEN {self.action(code)}")
        if not lines:
            return self.action(last)
        return "\n  ".join(["CASE", *lines, f"ELSE {self.action(last)} END"])

    def _cell(self, column: str) -> str:
        return f"t.{_quoted(self.inputs.name(column))}"

    def _in(self, column: str, texts: Iterable[str]) -> str:
        spelled = [*texts]
        known = {text for own in self.inputs.spellings(column).values() for text in own}
        # Labels that are whole numbers may be stored as numbers, and some databases show 25.0.
        as_numbers = [f"{text}.0" for text in spelled if text.lstrip("-").isdecimal()]
        spelled += [text for text in as_numbers if text not in known]
        listed = ", ".join(map(_text, spelled))
        # One character longer than any label, since a database may cut off longer texts.
        length = max(len(text) for text in spelled) + 1
        cell = f"CAST({self._cell(column)} AS VARCHAR({length}))"
        return f"{cell} IN ({listed})" if len(spelled) > 1 else f"{cell} = {listed}"


def _text(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _indented(text: str, by: int) -> str:
    return text.replace("\n", "\n" + " " * by)
