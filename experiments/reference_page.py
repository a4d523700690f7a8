"""Put every key, command and option into docs/reference.md, from the code that reads them.

python experiments/reference_page.py
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from marked_pages import write_between
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.models import OptionInfo

from fedopl.base.schema import KnownPropensity, Label
from fedopl.cli.app import app
from fedopl.client.client_settings import ClientFile
from fedopl.study.study_file import Feature, StudyFile

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
HEADER = ["| key | takes | default | meaning |", "|---|---|---|---|"]
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "`true` or `false`"}
LISTED = {str: "names", float: "numbers", int: "whole numbers"}
BOUNDS = {"ge": "from", "gt": "above", "le": "up to", "lt": "below"}

# What the models do not say themselves.
MEANINGS = {
    "mixture.kind": "every row counts the same, every client does, as given, or moved toward one; "
    "found along a path toward one, or for the client that loses most",
}


# --- keys of files -------------------------------------------------------------------------------


def keys_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """One row for each key that may stand in the file."""
    for name, field in model.model_fields.items():
        models = list(_models_in(field.annotation))
        listed = _listed_model(field.annotation)
        if listed:
            yield _row(f"{above}{name}", "a list of tables", _default(field), field.description)
            yield from keys_of(listed, f"{above}{name}[].")
        elif named := _named_model(field.annotation):
            yield from keys_of(named, f"{above}{name}.NAME.")
        elif not models:
            yield _row(f"{above}{name}", _takes(field), _default(field), field.description)
        elif len(models) == 1:
            yield from keys_of(models[0], f"{above}{name}.")
        else:
            yield from _keys_of_a_choice(models, f"{above}{name}.", field.default)


def _keys_of_a_choice(models: list[type[BaseModel]], above: str, default: Any) -> Iterator[str]:
    """The keys of models of which `kind` says which is meant."""
    kinds = " or ".join(f'`"{m.model_fields["kind"].default}"`' for m in models)
    yield _row(f"{above}kind", kinds, f'`"{default.kind}"`', None)
    rows = (
        _row(f"{above}{name}", _takes(field), _default(field), field.description)
        for model in models
        for name, field in model.model_fields.items()
        if name != "kind"
    )
    yield from dict.fromkeys(rows)  # some have the same key


def _row(key: str, takes: str, default: str, meaning: str | None) -> str:
    return f"| `{key}` | {takes} | {default} | {meaning or MEANINGS[key]} |"


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        for part in typing.get_args(annotation):
            yield from _models_in(part)


def _listed_model(annotation: Any) -> type[BaseModel] | None:
    """The model that a list holds any number of, if it is such a list."""
    part = (*typing.get_args(annotation), None)[0]
    holds_models = isinstance(part, type) and issubclass(part, BaseModel)
    return part if typing.get_origin(annotation) is tuple and holds_models else None


def _named_model(annotation: Any) -> type[BaseModel] | None:
    """The model that a table holds any number of, by names that people give, if it is one."""
    part = (None, *typing.get_args(annotation))[-1]
    holds_models = isinstance(part, type) and issubclass(part, BaseModel)
    return part if typing.get_origin(annotation) is dict and holds_models else None


def _takes(field: FieldInfo) -> str:
    said = {name: getattr(m, name) for m in field.metadata for name in BOUNDS if hasattr(m, name)}
    bounds = " ".join(f"{BOUNDS[name]} {bound:g}" for name, bound in said.items())
    return f"{_words(field.annotation)} {bounds}".strip()


def _words(annotation: Any) -> str:
    """What may be written, in words."""
    if annotation == Feature:
        return '`"number"`, a list of levels, a table, or a rule for dates'
    if annotation == Label:
        return "a label"
    if annotation == KnownPropensity:
        return "text, a number, or a table"
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _words(parts[0])
    if origin is typing.Literal:
        return " or ".join(f'`"{part}"`' for part in parts)
    if origin is dict:
        return f"a table: name = {_words(parts[1])}"
    if origin is tuple:
        is_whole = getattr(parts[0], "__origin__", None) is int  # with bounds
        return f"a list of {LISTED.get(int if is_whole else parts[0], 'labels')}"
    if isinstance(annotation, types.UnionType) or origin is typing.Union:
        return " or ".join(_words(part) for part in parts if part is not types.NoneType)
    return WORDS[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**needed**"
    if field.default_factory is not None or field.default in (None, ()):
        return "–"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, str):
        return f'`"{field.default}"`'
    if isinstance(field.default, tuple):
        return f"`[{', '.join(f'{number:g}' for number in field.default)}]`"
    return f"{field.default:g}".replace("e+", "e")


# --- commands ------------------------------------------------------------------------------------


def commands() -> dict[str, Callable[..., None]]:
    """The function behind every command of `fedopl`, in the order in which they are offered."""
    found = _commands_of(app)
    for group in app.registered_groups:
        named = _commands_of(group.typer_instance).items()
        found |= {f"{group.name} {name}": command for name, command in named}
    return found


def _commands_of(group: typer.Typer) -> dict[str, Callable[..., None]]:
    return {
        command.name or command.callback.__name__: command.callback
        for command in group.registered_commands
        if command.callback
    }


def arguments_of(command: Callable[..., None]) -> Iterator[str]:
    """What the command does, and a row for each argument and option."""
    yield inspect.cleandoc(command.__doc__ or "")
    rows = [
        _argument_row(parameter) for parameter in inspect.signature(command).parameters.values()
    ]
    yield from ("", "| | takes | default | |", "|---|---|---|---|", *rows)


def _argument_row(parameter: inspect.Parameter) -> str:
    annotation, info = typing.get_args(parameter.annotation)
    if isinstance(info, OptionInfo):
        # Typer keeps the first name that is said where a default would stand.
        name = info.default if isinstance(info.default, str) else f"--{parameter.name}"
    else:
        name = info.metavar or parameter.name.upper()
    takes, default = _argument_words(annotation, info), _argument_default(parameter.default)
    shown = (info.help or "").replace("\\[", "[")  # as the terminal shows it
    return f"| `{name}` | {takes} | {default} | {shown} |"


def _argument_words(annotation: Any, info: Any) -> str:
    if annotation is bool:
        return "–"
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in typing.get_args(annotation))
    if typing.get_origin(annotation) is list:
        return f"{_argument_words(typing.get_args(annotation)[0], info)}, one or more"
    if isinstance(annotation, types.UnionType):
        return _argument_words(typing.get_args(annotation)[0], info)
    bounds = [
        f"{word} {n:g}" for word, n in (("from", info.min), ("up to", info.max)) if n is not None
    ]
    return " ".join([{Path: "a path", **WORDS}[annotation], *bounds])


def _argument_default(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "**needed**"
    if default is None or default is False:
        return "–"
    return f"`{default}`"


def tables() -> dict[str, list[str]]:
    """What must stand between the marks of the page, by mark."""
    written = {
        "keys of study.toml": [*HEADER, *keys_of(StudyFile)],
        "keys of client.toml": [*HEADER, *keys_of(ClientFile)],
    }
    for name, command in commands().items():
        written[f"fedopl {name}"] = list(arguments_of(command))
    return written


def main() -> None:
    """Write all tables."""
    for mark, lines in tables().items():
        write_between(PAGE, mark, lines)


if __name__ == "__main__":
    main()
