"""Verbs that come before learning: schema, check, preview."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedopl.base.errors import StudyError
from fedopl.cli.arguments import AsJson, ClientPath, ClientsFolder, StudyPath
from fedopl.cli.printing import say_json

if TYPE_CHECKING:
    from fedopl.client.inspect_table import Examined
    from fedopl.engines.check_study import Readiness
    from fedopl.engines.preview import FieldInWords, Leaving
    from fedopl.study.study import Study


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
        say_json(_check_as_json(checked))
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
    from dataclasses import asdict

    from fedopl.engines.privacy_price import noise_table, noised, price_table, prices
    from fedopl.report.sections.privacy_promise import promise
    from fedopl.server.exchange_counts import expected_trips
    from fedopl.study.study_file import read_study

    agreed, _ = read_study(study)
    noise = noise_table(agreed)
    lacking = agreed.privacy.dropouts if agreed.privacy else 0
    # If clients may drop out, simulate as many clients as the study has.
    sizes = rows or [1000] * (len(agreed.privacy.keys) if agreed.privacy and lacking else 3)
    left = _left_to_tell(agreed, clients) if clients else {}
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
    from fedopl.client.disclosure.private_draws import PrivateDraws
    from fedopl.secure.keys import Identity

    found = {
        name: Identity(PrivateDraws(0, name, own.secret()).key).public
        for name, own in read_clients(clients).items()
    }
    if as_json:
        say_json(found)
        return
    typer.echo("[privacy.keys]")
    for name, key in found.items():
        typer.echo(f"{toml_key(name)} = {toml_text(key)}")


def _left_to_tell(study: "Study", folder: Path) -> dict[str, str]:
    from fedopl.client.client_file import read_clients
    from fedopl.client.disclosure.ledger import FileLedger, left_for, summaries

    return {
        name: left_for(study, summaries(FileLedger(own.ledger_path).entries()), own.settings.limits)
        for name, own in read_clients(folder).items()
    }


def _check_as_json(checked: "Readiness") -> dict[str, Any]:
    return {
        "ready": checked.is_ready,
        "problems": checked.problems,
        "differences": checked.differences,
        "clients": {
            name: {
                "rows": found.data.n_rows if found.data else None,
                "problems": found.problems,
                "rules": found.rules,
                "takes_part": found.takes_part,
                "cautions": found.cautions,
                "refusals": [{"query": q, "code": c} for q, c in checked.refusals[name]],
                "support": _support_as_json(found),
                "outcomes_missing": found.attrition.lost if found.attrition else {},
            }
            for name, found in checked.clients.items()
        },
    }


def _support_as_json(found: "Examined") -> dict[str, Any]:
    if found.overlap is None:
        return {}
    return {
        action: {"rows": int(n), "effective_rows": float(effective), "share_below_floor": float(b)}
        for action, n, effective, b in zip(
            found.overlap.action_names,
            found.overlap.rows,
            found.overlap.effective_rows,
            found.overlap.share_below_floor,
            strict=True,
        )
    }


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
    from fedopl.study.contract import contract_of
    from fedopl.study.study_file import read_study

    agreed, _ = read_study(study)
    here = read_client(client)
    if agreed.table is None:
        raise StudyError(f"{study}: says nothing about tables")
    rows = here.pinned(agreed, here.rows_for(agreed), rehearsing=True)
    leaving = rehearse(agreed, here, rows)
    if as_json:
        say_json([_leaving_as_json(left) for left in leaving])
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
        typer.echo(_leaving_as_text(left, brief=brief))
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


def _leaving_as_json(left: "Leaving") -> dict[str, Any]:
    return {
        "split": left.split,
        "query": left.query,
        "answer": left.answer,
        "refusal": left.refusal or None,
        "bytes": left.n_bytes,
        **left.scalars,
        **{
            part.name: {"axes": part.axes, "labels": part.labels, "numbers": part.numbers}
            | ({} if part.noise is None else {"noise": part.noise})
            for part in left.parts
        },
    }


def _leaving_as_text(left: "Leaving", *, brief: bool) -> str:
    if left.refusal:
        from fedopl.messages.refusal import in_words

        return f"── {left.query} → refused ({left.refusal}): {in_words(left.refusal).why}\n"
    lines = [f"── {left.query} → {left.answer}, {left.n_bytes:,} bytes"]
    lines += [f"   {name} = {value:g}" for name, value in left.scalars.items()]
    for part in left.parts:
        noise = "" if part.noise is None else f", noise ± {part.noise:.3g}"
        lines.append(f"   {part.name}: {' × '.join(part.axes)} {part.numbers.shape}{noise}")
        lines += [] if brief else [_numbers_as_text(part)]
    return "\n".join(lines) + "\n"


def _numbers_as_text(part: "FieldInWords") -> str:
    """A table of the last two axes for each position on the other axes, with labels."""
    import numpy as np

    from fedopl.base.tables import text_tables

    *outer, columns = part.labels
    if not outer:
        return text_tables(columns, [[f"{number:.6g}" for number in part.numbers]], 0)
    rows = outer.pop()
    tables = []
    for place in np.ndindex(*part.numbers.shape[:-2]):
        title = ", ".join(labels[k] for labels, k in zip(outer, place, strict=True))
        body = [
            [row, *(f"{number:.6g}" for number in line)]
            for row, line in zip(rows, part.numbers[place], strict=True)
        ]
        tables.append(text_tables([title, *columns], body))
    return "\n\n".join(tables)
