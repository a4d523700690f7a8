"""What verbs print: results on standard output, everything else on standard error."""

import json
import math
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer


def note(text: str) -> None:
    """A remark for a person; a pipe does not get it, and a script does not see it."""
    if sys.stderr.isatty():
        typer.echo(text, err=True)


def say_json(content: object) -> None:
    """The result for a program; what is not a finite number is null."""
    typer.echo(json.dumps(_plain(content), ensure_ascii=False, indent=1))


def say_paths(paths: Iterable[Path], *, as_json: bool) -> None:
    """The files that were written, a line each or as a list."""
    named = [str(path) for path in paths]
    if as_json:
        say_json(named)
    else:
        typer.echo("\n".join(named))


@contextmanager
def resumable(*command: str | Path) -> Iterator[None]:
    """Where somebody stops this, say which command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["fedopl", *map(str, command)])
        typer.echo(f"fedopl: stopped; the answers so far are kept. To continue: {again}", err=True)
        raise typer.Exit(130) from None


def _plain(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None  # JSON has no NaN and no infinity
    if hasattr(content, "tolist"):
        return _plain(content.tolist())
    return content
