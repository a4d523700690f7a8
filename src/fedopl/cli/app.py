"""The command `fedopl` with all its verbs; slow imports happen only when a verb needs them."""

import io
import sys
import warnings
from collections.abc import Callable

import typer

from fedopl.base.errors import FedoplError, FedoplWarning
from fedopl.cli import before_run, federation_verbs, ledger_verbs, result_verbs, run_verbs

app = typer.Typer(
    help="One good decision policy from logged data that nobody may share.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which a new user needs them.
PANELS: dict[str, list[Callable[..., None]]] = {
    "Start": [run_verbs.demo, before_run.init, before_run.schema],
    "Look first": [
        *(before_run.keys, before_run.check, before_run.preview, before_run.privacy),
        before_run.cost,
    ],
    "Learn": [
        *(run_verbs.run, run_verbs.evaluate, run_verbs.join, run_verbs.leave),
        *(federation_verbs.certificates, federation_verbs.server),
        *(federation_verbs.node, federation_verbs.aggregate),
    ],
    "Use the result": [
        *(result_verbs.report, result_verbs.compare, result_verbs.diagnose),
        *(result_verbs.explain, result_verbs.decide, result_verbs.export, result_verbs.personal),
        *(result_verbs.budget, ledger_verbs.ledger),
    ],
    "The paper": [run_verbs.reproduce],
}
for panel, verbs in PANELS.items():
    for verb in verbs:
        app.command(rich_help_panel=panel)(verb)
app.add_typer(federation_verbs.flower, name="flower", rich_help_panel="Learn")


def _version(wanted: bool) -> None:
    if wanted:
        from fedopl import __version__

        typer.echo(f"fedopl {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="print the version and end"
    ),
) -> None:
    """One good decision policy from logged data that nobody may share."""


def _say_warning(
    message: Warning | str, category: type[Warning], *_where: object, **_how: object
) -> None:
    """Print our own warnings in one line; do not print those of libraries."""
    if issubclass(category, FedoplWarning):
        typer.echo(f"fedopl: note: {message}", err=True)


def main() -> None:
    """Run the command line; a user's mistake ends in one line and a non-zero exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A pipe may have another encoding. Replace characters that it cannot show.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", FedoplWarning)
            warnings.showwarning = _say_warning
            app()
    except FedoplError as error:
        typer.echo(f"fedopl: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        typer.echo("fedopl: stopped; finished work is kept", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the program that read our output has stopped reading
        sys.exit(141)
