"""The verb that starts a study: commented examples, or a draft from tables."""

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.base.errors import OptionError, StorageError
from fedopl.cli.arguments import AsJson
from fedopl.cli.printing import note, say_json, say_paths

if TYPE_CHECKING:
    from fedopl.client.drafted_text import Hints

# Where `init` writes the commented examples.
PLACES = {"study.toml": "study.toml", "client.toml": "clients/north/client.toml"}


def init(
    folder: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER", help="where to write; default: here; after --from, more tables"
        ),
    ] = None,
    *,
    tables: Annotated[
        list[Path] | None, typer.Option("--from", help="draft the study from these tables")
    ] = None,
    client_column: Annotated[
        str | None,
        typer.Option(
            "--client-column", help="the column that names the client of each row, in one table"
        ),
    ] = None,
    action: Annotated[str | None, typer.Option(help="the column that says what was done")] = None,
    outcome: Annotated[str | None, typer.Option(help="the column with the outcome")] = None,
    private: Annotated[
        bool | None,
        typer.Option(
            "--private/--exact",
            help=r"draft \[privacy], or leave it out; default: a comment, with what it would cost",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a commented study.toml and a client.toml to start from, or draft them from tables."""
    given = folder or []
    if tables:
        from fedopl.client.drafted_text import Hints
        from fedopl.client.table.formats import READERS, suffix_of

        # With `--from a.csv b.csv`, typer sees one table and one more argument.
        more = [path for path in given if suffix_of(path) in READERS]
        where = _only([path for path in given if path not in more])
        hints = Hints(action=action, outcome=outcome, client_column=client_column, private=private)
        _draft([*tables, *more], where, hints, as_json=as_json)
        return
    if client_column or action or outcome or private is not None:
        raise OptionError(
            "init: --client-column, --action, --outcome, --private and --exact need tables: "
            "add --from"
        )
    where = _only(given)
    paths = {name: where / place for name, place in PLACES.items()}
    _refuse_taken(paths.values())
    from fedopl.base.files import write_atomically

    for name, path in paths.items():
        # Only the owner may read a client's file, as it will hold the client's secret.
        mode = 0o600 if name == "client.toml" else 0o666
        write_atomically(path, template(name).encode(), mode)
    say_paths(paths.values(), as_json=as_json)
    note("Edit both, then: fedopl check study.toml --clients clients")


def template(name: str) -> str:
    """One of the commented examples."""
    return (files("fedopl.cli") / "templates" / name).read_text(encoding="utf-8")


def _only(folders: Sequence[Path]) -> Path:
    if len(folders) > 1:
        raise OptionError(f"init: expected one folder, came {', '.join(map(str, folders))}")
    return folders[0] if folders else Path()


def _refuse_taken(paths: Iterable[Path]) -> None:
    if taken := [str(path) for path in paths if path.exists()]:
        raise StorageError(f"{', '.join(taken)}: is there already; name an empty folder")


def _draft(tables: Sequence[Path], folder: Path, hints: "Hints", *, as_json: bool) -> None:
    from fedopl.client.draft_study import draft_study

    draft = draft_study(tables, folder, hints)
    paths = draft.places(folder)
    _refuse_taken(paths)
    draft.write(folder)
    if as_json:
        written = [str(path) for path in paths]
        say_json({"written": written, "confirm": {str(n): t for n, t in draft.to_confirm.items()}})
        return
    say_paths(paths, as_json=False)
    typer.echo(f"To confirm in {paths[0]}:")
    typer.echo("\n".join(f"  line {n}: {text}" for n, text in draft.to_confirm.items()))
    note(f"Then: fedopl check {paths[0]} --clients {folder / 'clients'}")
