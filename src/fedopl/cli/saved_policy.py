"""The policy that a verb is about: a saved one, or that of a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedopl.client.client_file import ClientFile
    from fedopl.client.ranked_rows import Affordable, Ranking
    from fedopl.engines.runs import Run
    from fedopl.policies.policy import Policy


def policy_and_run(path: Path) -> "tuple[Policy, Run | None]":
    """A saved policy; with the folder of a run, also the run."""
    from fedopl.base.errors import PolicyError
    from fedopl.policies.kinds import load_policy

    if not path.is_dir():
        return load_policy(path), None
    from fedopl.engines.runs import load_run

    run = load_run(path)
    if run.policy is None:
        raise PolicyError(f"{path}: its best candidate, {run.chosen}, is a rule in code")
    return run.policy, run


def ranking_of(
    over: str | None, places: list[str], *, fill: bool, affordable: "Affordable | None" = None
) -> "Ranking":
    """What to rank by, and places such as A=200, or what may be spent."""
    from fedopl.base.errors import OptionError
    from fedopl.client.ranked_rows import Ranking

    found: dict[str, int] = {}
    for text in places:
        action, sign, number = text.rpartition("=")
        if not sign or not number.strip().isdecimal():
            raise OptionError(f"--places: expected an action and a number, A=200, came '{text}'")
        if action in found:
            raise OptionError(f"--places: '{action}' is named more than once")
        found[action] = int(number)
    return Ranking(over=over, places=found, fill=fill, affordable=affordable)


def affordable_by(path: Path, most: float) -> "Affordable":
    """So much on average, by what the study of a run says that actions cost."""
    from fedopl.base.errors import OptionError
    from fedopl.client.ranked_rows import Affordable

    _, run = policy_and_run(path)
    if run is None:
        raise OptionError(
            f"--budget: {path} is a policy alone; name the folder of its run, whose study says "
            "what actions cost"
        )
    if run.study.costs is None:
        raise OptionError(
            f"--budget: the study of {path} says of no action what it costs; --places A=200 says "
            "how many there are"
        )
    return Affordable(most=most, costs=run.study.costs.parameters(run.study))


def policy_here(
    path: Path, client: Path | None, *, scored: bool = False, priced: bool = True
) -> "tuple[Policy, ClientFile | None]":
    """A policy as it decides at a client, and the client's settings, if its folder is named.

    With scores, it is one whose scores are what actions are worth; less what they cost at the
    price of the study's budget, if there is one, unless they are not to be priced.
    """
    from fedopl.analysis.scored_policy import scored_policy
    from fedopl.base.errors import OptionError
    from fedopl.client.client_file import read_client

    policy, run = policy_and_run(path)
    if scored and run:
        policy = scored_policy(run, priced=priced)
    if client is not None and client.exists():
        found = read_client(client)
        return policy.at(found.name), found.settings
    rules = policy.permissions
    if client is not None and (rules is None or not rules.only):
        raise OptionError(
            f"{client}: there is no such client's folder; a name alone says who may get what, and "
            "by this policy that is the same everywhere"
        )
    name = None if client is None else str(client)
    return policy.at(rules.checked_client(name)) if rules else policy, None
