"""Verbs that come before learning: init, schema, check, privacy, keys, preview, cost."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedopl.base.errors import OptionError, StorageError, StudyError
from fedopl.cli.arguments import AsJson, ClientPath, ClientsFolder, StudyPath
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


def schema(
    kind: Annotated[Literal["study", "client"], typer.Argument(help="of which file")] = "study",
) -> None:
    """Print the JSON Schema of a file, for editors that check while you type."""
    from fedopl.client.client_settings import ClientFile
    from fedopl.study.study_file import StudyFile

    content = (StudyFile if kind == "study" else ClientFile).model_json_schema()
    content["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    say_json(content | {"title": f"fedopl {kind}.toml"})


def check(
    study: StudyPath = Path("study.toml"),
    *,
    clients: ClientsFolder = Path("clients"),
    as_json: AsJson = False,
) -> None:
    """Hold every client's data against the study, before anything is learned."""
    from fedopl.engines.check_study import check as check_folders

    checked = check_folders(study, clients)
    if as_json:
        say_json(checked.as_json())
    else:
        typer.echo(str(checked))
    if not checked.is_ready:
        raise typer.Exit(1)


def privacy(
    study: StudyPath = Path("study.toml"),
    *,
    rows: Annotated[
        list[int] | None,
        typer.Option(min=10, max=1_000_000, help="rows of a client; once for each client"),
    ] = None,
    clients: Annotated[
        Path | None,
        typer.Option(
            "--clients",
            help="also show what is left of the lifetime budget of each client in this folder",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what differential privacy promises and costs, from made-up rows; none is touched."""
    from fedopl.client.client_file import read_clients
    from fedopl.client.disclosure.ledger import FileLedger, left_for, summaries
    from fedopl.engines.privacy_price import noise_table, noised, price_table, prices
    from fedopl.report.sections.disclosed import promise
    from fedopl.server.exchange_counts import expected_trips
    from fedopl.study.study_file import read_study

    agreed, _ = read_study(study)
    noise = noise_table(agreed)
    lacking = agreed.privacy.dropouts if agreed.privacy else 0
    # If clients may drop out, simulate as many clients as the study has.
    sizes = rows or [1000] * (len(agreed.privacy.keys) if agreed.privacy and lacking else 3)
    left = {}
    for name, own in (read_clients(clients) if clients else {}).items():
        spent = summaries(FileLedger(own.ledger_path).entries())
        left[name] = left_for(agreed, spent, own.settings.limits)
    found, trips = prices(agreed, sizes), expected_trips(agreed, len(sizes))
    if as_json:
        told = {"prices": [asdict(one) for one in found], "left": left, "trips": trips}
        say_json({"rows": sizes, "releases": [asdict(one) for one in noised(agreed)], **told})
        return
    assert agreed.privacy is not None  # noqa: S101
    sized = ", ".join(f"{n_rows:,}" for n_rows in sizes)
    effects = "effects that a tree tells apart" if agreed.policy.on_grid else "linear effects"
    typer.echo(promise(agreed.privacy))
    whose = "in the total of" if agreed.privacy.is_secure else "that each client adds to"
    if agreed.privacy.values_apart:
        whose = "in the total of, or where that is said in each client's own of,"
    typer.echo(f"\nNoise {whose} every number, in units of the study:\n{noise}")
    typer.echo(
        f"\nWith clients of {sized} made-up rows, {effects} of usual size, and actions that "
        f"are equally likely:\n{price_table(found)}"
    )
    typer.echo(f"\nA run takes {trips} trips between server and clients.")
    if left:
        typer.echo(
            "\nBudget that clients have spent, and their limits over the lifetime of their rows:"
        )
    for name, said in left.items():
        typer.echo(f"{name}: {said}")


def keys(
    clients: Annotated[
        Path, typer.Argument(help="a client's folder, or one with a folder for each client")
    ] = Path("clients"),
    *,
    as_json: AsJson = False,
) -> None:
    """Make the secret of each client that has none, and print their public keys.

    The keys are for a study that adds up under masks. A secret decides which rows are held out, and
    the noise on what is released.
    """
    from fedopl.base.toml_file import toml_key, toml_text
    from fedopl.client.client_file import read_clients
    from fedopl.client.disclosure.private_draws import public_key

    found = {name: public_key(name, own.secret()) for name, own in read_clients(clients).items()}
    if as_json:
        say_json(found)
        return
    typer.echo("[privacy.keys]")
    for name, key in found.items():
        typer.echo(f"{toml_key(name)} = {toml_text(key)}")


def preview(
    study: StudyPath,
    client: ClientPath,
    *,
    brief: Annotated[
        bool, typer.Option("--brief", help="show only the shapes, without the numbers")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every number that would leave one client in this study; nothing is sent."""
    from fedopl.client.client_file import read_client
    from fedopl.client.inspect_table import rules_for
    from fedopl.engines.preview import rehearse
    from fedopl.study.private.privacy_plan import contract_of
    from fedopl.study.study_file import read_study

    agreed, _ = read_study(study)
    here = read_client(client)
    if agreed.table is None:
        raise StudyError(f"{study}: says nothing about tables")
    rows = here.pinned(agreed, here.rows_for(agreed), rehearsing=True)
    leaving = rehearse(agreed, here, rows)
    if as_json:
        say_json([left.as_json() for left in leaving])
        return
    typer.echo(f"{contract_of(agreed)}\n")
    if not agreed.privacy:
        typer.echo("\n".join(rules_for(here, agreed, rows)) + "\n")
    split = 1
    for left in leaving:
        if left.split > split:  # the first split needs no heading, as most studies have only one
            split = left.split
            last = split > agreed.evaluation.splits
            again = (
                "from all rows" if last else f"under split {split} of {agreed.evaluation.splits}"
            )
            typer.echo(f"═══ once more, {again}\n")
        typer.echo(left.in_words(brief=brief))
    if brief and agreed.terms:
        found = " what screening finds;" * (not agreed.is_screened)
        typer.echo(f"Terms: {', '.join(agreed.terms.names)};{found} and an intercept.\n")
    n_numbers = sum(left.n_numbers for left in leaving)
    n_bytes = sum(left.n_bytes for left in leaving)
    typer.echo(
        f"{len(leaving)} answers, {n_numbers:,} numbers, {n_bytes:,} bytes. Sums over rows "
        "are exactly these. Answers that depend on the models of all clients are computed "
        "here from this client alone."
    )
    if agreed.privacy and agreed.privacy.is_secure:
        typer.echo(
            "Masked numbers are sums with noise. Only their total over all clients can be "
            "read. If the numbers of one client are lacking, they look random."
        )
        if agreed.privacy.values_apart:
            typer.echo(
                "The server reads values apart for each client. They have all the noise of "
                "the promise; ± is its standard deviation."
            )
        if agreed.privacy.dropouts:
            typer.echo(
                "Shares hold no information about rows. Enough of them remove the masks from "
                "one sum over the clients that answered, once, even if other clients are "
                "lacking."
            )
    elif agreed.privacy:
        round_terms = (
            " Each term is shown less what the terms before it predict of it."
            if agreed.terms
            else ""
        )
        typer.echo(
            "Everything but the number of rows has noise; ± is its standard deviation. "
            f"Numbers are in units of the study.{round_terms}"
        )


def cost(
    study: StudyPath = Path("study.toml"),
    *,
    clients: Annotated[
        int, typer.Option("--clients", min=2, help="the number of clients to plan for")
    ] = 1000,
    rows: Annotated[
        int, typer.Option(min=10, max=1_000_000, help="the number of rows of each client")
    ] = 1000,
    dropout: Annotated[
        float, typer.Option(help="the share of clients that never answer; under masks, in each sum")
    ] = 0.0,
    group: Annotated[
        int | None,
        typer.Option(
            min=2, help="clients that speak to one aggregator; default: all speak to the server"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how many bytes, trips and seconds a run takes; rehearses with made-up rows."""
    from fedopl.engines.plan_cost import plan_cost
    from fedopl.study.study_file import read_study

    agreed, _ = read_study(study)
    try:
        plan = plan_cost(agreed, clients=clients, rows=rows, dropout=dropout, group=group)
    except OptionError as error:
        # The error, in which arguments of Python are called as the command calls them.
        is_option = str(error).partition(":")[0] in ("clients", "rows", "dropout", "group")
        raise OptionError(f"--{error}" if is_option else str(error)) from None
    if as_json:
        say_json(asdict(plan) | {"stops": plan.stops, "refused": plan.refused})
    else:
        typer.echo(str(plan))
