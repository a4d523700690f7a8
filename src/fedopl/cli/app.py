"""`fedopl`: the verbs, gathered; heavy imports wait until a verb is called."""

import io
import sys
import warnings

import typer

from fedopl.base.errors import FedoplError, FedoplWarning
from fedopl.cli import before_run, flower_verbs, reproduce_verb, result_verbs, run_verbs

app = typer.Typer(
    help="One good decision policy from logged data that nobody may share.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which a newcomer needs them.
START, LOOK, LEARN, RESULTS = "Start", "Look first", "Learn", "Use the result"

app.command(rich_help_panel=START)(run_verbs.demo)
app.command(rich_help_panel=START)(before_run.init)
app.command(rich_help_panel=START)(before_run.schema)
app.command(rich_help_panel=LOOK)(before_run.check)
app.command(rich_help_panel=LOOK)(before_run.preview)
app.command(rich_help_panel=LEARN)(run_verbs.run)
app.command(rich_help_panel=LEARN)(run_verbs.evaluate)
app.command(rich_help_panel=RESULTS)(result_verbs.report)
app.command(rich_help_panel=RESULTS)(result_verbs.compare)
app.command(rich_help_panel=RESULTS)(result_verbs.diagnose)
app.command(rich_help_panel=RESULTS)(result_verbs.explain)
app.command(rich_help_panel=RESULTS)(result_verbs.decide)
app.command(rich_help_panel=RESULTS)(result_verbs.ledger)
app.add_typer(flower_verbs.app, name="flower", rich_help_panel=LEARN)
app.command(rich_help_panel="The paper")(reproduce_verb.reproduce)


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
    """Our own warnings are for the user, in one line; those of libraries are not."""
    if issubclass(category, FedoplWarning):
        typer.echo(f"fedopl: note: {message}", err=True)


def main() -> None:
    """Run the command line; a user's mistake ends in one line and a non-zero exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A pipe may want another encoding; a sign it cannot show is no reason to stop.
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
        typer.echo("fedopl: stopped; what was finished is kept", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has had enough
        sys.exit(141)
