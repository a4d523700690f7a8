"""Strict reader of TOML files written by people; it names the line of every mistake."""

import difflib
import json
import re
import tomllib
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedopl.base.errors import OptionError
from fedopl.base.validation import in_place, what_became_of
from fedopl.base.whole_numbers import check_64_bits, is_beyond_64_bits

Parsed = TypeVar("Parsed", bound=BaseModel)
Keys = tuple[str, ...]

_KEY = r"(?:\"[^\"]*\"|'[^']*'|[\w-]+)"
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_MANY_DIGITS = re.compile(r"[\d_]{4000}")
_TABLE_LINE = re.compile(rf"\s*\[\[?\s*({_DOTTED})\s*\]")
_KEY_LINE = re.compile(rf"\s*({_DOTTED})\s*=")


@dataclass(frozen=True)
class TomlFile:
    """The content of a file, and the line of each key."""

    path: Path
    text: str
    content: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "TomlFile":
        """Read and parse the file; an error in the syntax names its line."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except IsADirectoryError:
            raise OptionError(f"{path}: expected a file, came a folder") from None
        except OSError as error:
            raise OptionError(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise OptionError(f"{path}: expected UTF-8 text; save it as UTF-8") from None
        try:
            file = cls(path, text, tomllib.loads(text))
        except RecursionError:
            raise OptionError(f"{path}: brackets within brackets, too deep to be read") from None
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"^(.*) \(at line (\d+), column (\d+)\)$", str(error))
            where = f", line {found[2]}, column {found[3]}" if found else ""
            raise OptionError(f"{path}{where}: {found[1] if found else error}") from None
        except ValueError:  # a number with more digits than Python reads
            number = next((n for n, line in _numbered(text) if _MANY_DIGITS.search(line)), 1)
            raise OptionError(
                f"{path}, line {number}: expected a whole number of 64 bits, came one of thousands "
                "of digits"
            ) from None
        for keys, value in _values_in(file.content):
            if is_beyond_64_bits(value):
                check_64_bits(value, file.complaint(keys, ".".join(keys)))
        return file

    def parsed(self, model: type[Parsed]) -> Parsed:
        """The content as this model; if it is not valid, an error with one line per mistake."""
        try:
            # Strictly, as JSON: no type is converted to another, and dates become text.
            return model.model_validate_json(json.dumps(self.content, default=str), strict=True)
        except ValidationError as error:
            mistakes = sorted(error.errors(include_url=False), key=self._position)
            raise OptionError("\n".join(self._line(model, m) for m in mistakes)) from None

    def complaint(self, keys: Iterable[str | int], message: str) -> str:
        """The message, with the file and the line of these keys."""
        line = self.line_of(keys)
        return f"{self.path}, line {line}: {message}" if line else f"{self.path}: {message}"

    def line_of(self, keys: Iterable[str | int]) -> int | None:
        """The line of the deepest of these keys that the file names."""
        lines = _lines_of(self.text)
        known: Keys = ()
        for key in map(str, keys):
            if (*known, key) in lines:
                known = (*known, key)
        return lines.get(known)

    def _position(self, mistake: Any) -> int:
        return self.line_of(in_place(mistake)[0]) or 0

    def _as_written(self, keys: tuple[str | int, ...]) -> str:
        """The keys without the tags of unions, which do not appear in the file."""
        written: list[str] = []
        here: Any = self.content
        for position, key in enumerate(keys):
            is_there = isinstance(here, dict) and key in here
            if is_there or position == len(keys) - 1 or not isinstance(here, dict):
                written.append(str(key))
            here = here[key] if is_there else here
        return ".".join(written)

    def _line(self, model: type[BaseModel], mistake: Any) -> str:
        keys, message = in_place(mistake)
        name = self._as_written(keys)
        if mistake["type"] == "extra_forbidden":
            offered = [name for m in _models_at(model, keys[:-1]) for name in m.model_fields]
            gone = what_became_of(keys[-1])
            nearest = f"unknown key '{name}'; {_nearest(str(keys[-1]), offered)}"
            message = f"'{name}' {gone}" if gone else nearest
        elif mistake["type"] == "missing":
            message = f"'{name}' is missing; add it"
        elif mistake["type"] in ("union_tag_invalid", "union_tag_not_found"):
            offered = [str(_tag(known)) for known in _models_at(model, keys)]
            came = mistake["ctx"].get("tag")
            keys = (*keys, "kind")
            name = self._as_written(keys)
            said = f"{name}: came {came!r}" if came else f"'{name}' is missing"
            message = f"{said}; {_nearest(came or '', offered)}"
        elif mistake["type"] == "literal_error":
            offered = re.findall(r"'([^']*)'", mistake["ctx"]["expected"])
            came = mistake["input"]
            message = f"{name}: came {came!r}; {_nearest(str(came), offered)}"
        else:
            message = f"{name}: {message}" if name else message
        return self.complaint(keys, message)


def _lines_of(text: str) -> dict[Keys, int]:
    """The line of every key.

    A table that only appears in another table's name, such as `a` in `[a.b]`, has the other's line.
    """
    lines: dict[Keys, int] = {}
    for keys, number in _keys_in(text):
        for depth in range(1, len(keys) + 1):
            lines.setdefault(keys[:depth], number)
        lines[keys] = number
    return lines


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), start=1)


def _values_in(content: Any, keys: Keys = ()) -> Iterator[tuple[Keys, object]]:
    """Every value that is neither a table nor a list, with the keys that lead to it."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _values_in(value, (*keys, key))
    elif isinstance(content, list):
        for value in content:
            yield from _values_in(value, keys)
    else:
        yield keys, content


def _keys_in(text: str) -> Iterator[tuple[Keys, int]]:
    """Every key and table of the file with its line; the first table of an array stands for all."""
    table: Keys = ()
    inside_text = False
    seen: set[Keys] = set()
    for number, line in _numbered(text):
        was_inside = inside_text
        inside_text ^= (line.count('"""') + line.count("'''")) % 2 == 1
        if was_inside:
            continue
        keys: Keys = ()
        if found := _TABLE_LINE.match(line):
            table = keys = _split(found[1])
        elif found := _KEY_LINE.match(line):
            keys = (*table, *_split(found[1]))
        if keys and keys not in seen:
            seen.add(keys)
            yield keys, number


def _split(dotted: str) -> Keys:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, dotted))


def _models_at(model: type[BaseModel], keys: Iterable[str | int]) -> list[type[BaseModel]]:
    """The models that are possible in this place: one model, or those of a union."""
    here: list[Any] = [model]
    for key in keys:
        deeper = [m.model_fields[key].annotation for m in here if key in m.model_fields]
        # The tag of a union is not a key: it says which of its models was meant.
        here = list(_models_in(deeper)) if deeper else [m for m in here if _tag(m) == key]
    return here


def _models_in(annotations: Iterable[Any]) -> Iterator[type[BaseModel]]:
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield annotation
        elif isinstance(annotation, UnionType) or typing.get_origin(annotation) is typing.Union:
            yield from _models_in(typing.get_args(annotation))


def _tag(model: type[BaseModel]) -> object:
    return model.model_fields["kind"].default if "kind" in model.model_fields else None


def _nearest(came: str, offered: list[str]) -> str:
    near = difflib.get_close_matches(came.lower(), offered, n=1)
    choices = f"expected one of {', '.join(offered)}"
    return f"did you mean '{near[0]}'? {choices}" if near else choices


def toml_text(value: str) -> str:
    """A text between quotation marks, as TOML and JSON write it."""
    return json.dumps(value, ensure_ascii=False)


def toml_key(name: str) -> str:
    """A name as a TOML key, in quotation marks if it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)
