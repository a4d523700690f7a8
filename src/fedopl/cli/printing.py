"""How verbs print, and end: results to standard output, everything else to standard error."""

import json
import math
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer


def note(text: str) -> None:
    """Print a note for a person: only if standard error is a terminal."""
    if sys.stderr.isatty():
        typer.echo(text, err=True)


def say_json(content: object) -> None:
    """Print the result as JSON; NaN and infinity become null."""
    typer.echo(json.dumps(_plain(content), ensure_ascii=False, indent=1))


def say_paths(paths: Iterable[Path], *, as_json: bool) -> None:
    """Print the files that were written, one per line or as a JSON list."""
    named = [str(path) for path in paths]
    if as_json:
        say_json(named)
    else:
        typer.echo("\n".join(named))


@contextmanager
def resumable(*command: str | Path) -> Iterator[None]:
    """If the user stops the block with Ctrl-C, print the command that continues."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["fedopl", *map(str, command)])
        typer.echo(f"fedopl: stopped; the answers so far are kept. To continue: {again}", err=True)
        raise typer.Exit(130) from None


def stop_when_told() -> None:
    """Let SIGTERM, or a closed terminal, end the command with its usual cleaning up."""
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has only SIGTERM
            signal.signal(getattr(signal, name), _stop)


def _stop(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


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
