"""`fedopl budget`: what the policy of a run does with another budget; asks no client."""

from pathlib import Path
from typing import Annotated

import typer

from fedopl.cli.arguments import AsJson
from fedopl.cli.printing import say_json


def budget(
    run: Annotated[Path, typer.Argument(help="the folder of a run of a study with a budget")],
    *,
    most: Annotated[
        float | None,
        typer.Option(help="the mean cost of a decision, or the share; default: the study's"),
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="for this client alone; default: for all clients together")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="confidence with which it holds, 0.5 to below 1; default: the study's"),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="write the policy at that price to this file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a policy gains and spends with another budget, and write it; asks no client."""
    from fedopl.base.errors import OptionError
    from fedopl.base.labels import GLOBAL
    from fedopl.engines.runs import load_run
    from fedopl.results.spending.budget_words import point_as_json, point_in_words

    found = load_run(run)
    plan = found.study.budget
    if plan is None:
        raise OptionError(
            f"{run}: its study has no budget, so no client reported what its policy spends"
        )
    if found.in_doubt:
        raise OptionError(
            f"{run}: {found.in_doubt}, so nothing is claimed about what a budget buys"
        )
    limit = plan.limit if most is None else most
    point = found.at_budget(limit, client or GLOBAL, confidence=confidence)
    if save and point.policy is None:
        raise OptionError(
            f"{run}: '{point.candidate}' is a candidate that this run does not store; use the "
            "file that the study names"
        )
    if save and point.policy:
        point.policy.save(save)
    if as_json:
        say_json(point_as_json(point) | ({"policy": str(save)} if save else {}))
        return
    typer.echo(point_in_words(found, point))
    if save:
        typer.echo(f"The policy is {save}")
