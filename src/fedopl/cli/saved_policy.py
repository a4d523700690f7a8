"""Finds the policy that a verb works on: a saved policy, or that of a finished run.

Verbs import this file when they are called, as its imports are slow.
"""

from pathlib import Path

import typer

from fedopl.analysis.scored_policy import scored_policy
from fedopl.base.errors import OptionError, PolicyError
from fedopl.client.client_file import Client, read_client
from fedopl.client.client_settings import ClientFile
from fedopl.client.disk.personal_store import kept_personal, kept_rule
from fedopl.client.disk.store import FolderStore
from fedopl.client.ranked_rows import Affordable, Ranking
from fedopl.engines.folder_doors import home_policy
from fedopl.engines.runs import Run, load_run
from fedopl.policies.kinds import load_policy
from fedopl.policies.policy import Policy
from fedopl.results.files.run_folder import shared_personal
from fedopl.study.splits import split_studies


def policy_and_run(path: Path) -> tuple[Policy, Run | None]:
    """The saved policy at this path, and the run if the path is a run's folder."""
    if not path.is_dir():
        return load_policy(path), None
    run = load_run(path)
    if run.policy is None:
        raise PolicyError(f"{path}: its best candidate, {run.chosen}, is a rule in code")
    return run.policy, run


def ranking_of(
    over: str | None, places: list[str], *, fill: bool, affordable: Affordable | None = None
) -> Ranking:
    """The ranking that these options ask for: places such as A=200, or a budget."""
    found: dict[str, int] = {}
    for text in places:
        action, sign, number = text.rpartition("=")
        if not sign or not number.strip().isdecimal():
            raise OptionError(f"--places: expected an action and a number, A=200, came '{text}'")
        if action in found:
            raise OptionError(f"--places: '{action}' is named more than once")
        found[action] = int(number)
    return Ranking(over=over, places=found, fill=fill, affordable=affordable)


def affordable_by(path: Path, most: float) -> Affordable:
    """A budget of `most` per decision on average, with the costs from the study of this run."""
    _, run = policy_and_run(path)
    if run is None:
        raise OptionError(
            f"--budget: {path} is a policy without its run; name the folder of the run, whose "
            "study says what actions cost"
        )
    if run.study.costs is None:
        raise OptionError(
            f"--budget: the study of {path} gives no costs of actions; --places A=200 limits "
            "how many rows get an action"
        )
    return Affordable(most=most, costs=run.study.costs.parameters(run.study))


def policy_here(
    path: Path,
    client: Path | None,
    *,
    scored: bool = False,
    priced: bool = True,
    shared: bool = False,
) -> tuple[Policy, ClientFile | None]:
    """The policy for decisions at a client, and the client's settings if its folder is given.

    If `scored`, the policy's scores are the values of actions. If `priced` and the study has a
    budget, costs at the budget's price are subtracted from scores. If the client has a personal
    policy in the run, the result is that policy, unless `shared`.
    """
    policy, run = policy_and_run(path)
    if scored and run:
        policy = scored_policy(run, priced=priced)
    if client is not None and client.exists():
        found = read_client(client)
        own = None if shared or run is None else _personal(run, found)
        return (own or policy).at(found.name), found.settings
    why_none = ""
    if client is not None and run is not None and not shared:
        saved = shared_personal(path, str(client))
        if saved.is_file():
            _say_personal(run, str(client))
            return load_policy(saved).at(str(client)), None
        why_none = _why_no_personal(run, str(client))
    rules = policy.permissions
    if client is not None and (rules is None or not rules.only):
        raise OptionError(
            f"{client}: there is no such client's folder. A name alone selects the actions "
            f"permitted at that client, and this policy permits the same at every client{why_none}"
        )
    if why_none:
        typer.echo(f"The shared policy is used{why_none}", err=True)
    name = None if client is None else str(client)
    return policy.at(rules.checked_client(name)) if rules else policy, None


def policy_to_explain(
    path: Path, client: Path | None, *, shared: bool
) -> tuple[Policy, Run | None]:
    """The policy for decisions at a client, and the run, if what the run says is about it."""
    policy, run = policy_and_run(path)
    if client is None:
        return policy, run
    found, _ = policy_here(path, client, shared=shared)
    if run is None or found.numbers().tobytes() == policy.numbers().tobytes():
        return found, run
    # Of a personal policy a run knows neither leaves nor noise, but by how much features differ.
    is_measured = found.explained_by == "weights" and run.study.privacy is None
    return found, run if is_measured else None


def _why_no_personal(run: Run, name: str) -> str:
    """Why the name of a client does not give its personal policy; empty if it can have none."""
    study = run.study
    if not (study.personalises or study.personalises_at_home):
        return ""
    if run.membership and not run.personal:
        return (
            ". Clients joined or left after the personal policies were solved, so this run has "
            "none; a new run has them again"
        )
    share = "" if study.personalises_at_home else ", unless share_personal = true in client.toml"
    return (
        f". The personal policy of '{name}' is kept in its client's folder{share}: name that "
        "folder, as in --client clients/NAME"
    )


def _personal(run: Run, client: Client) -> Policy | None:
    """The client's personal policy in this run, or None; prints which policy is used.

    With differential privacy it is solved now if it was not before.
    """
    if run.study.personalises_at_home:
        return _said(run, client, home_policy(run, client))
    if not run.study.personalises:
        return None
    if run.membership and not run.personal:
        typer.echo(
            "Clients joined or left after the personal policies were solved. The shared "
            "policy, which was solved again, is used",
            err=True,
        )
        return None
    store = FolderStore(client.store_path)
    study, *_ = split_studies(run.study)  # with several splits, the policy is that of the first
    if (rule := kept_rule(store, study, client.name)) is not None:
        raise PolicyError(
            f"{client.name}: its personal choice, {rule}, is a rule in code; --shared uses the "
            "shared policy"
        )
    return _said(run, client, kept_personal(store, study, client.name))


def _said(run: Run, client: Client, found: Policy | None) -> Policy | None:
    if found is None:
        typer.echo(
            f"{client.name} has no personal policy in this run; the shared policy is used", err=True
        )
        return None
    _say_personal(run, client.name)
    return found


def _say_personal(run: Run, client: str) -> None:
    """Print that the personal policy decides, and whether it was surely worse than the shared."""
    typer.echo(
        f"Decided by the personal policy of {client}; --shared uses the shared policy", err=True
    )
    over = run.personal.by_cell().get((run.valued_as, client))
    rows = run.study.evaluation.rows_valued
    if over and over.interval[1] < 0:
        typer.echo(
            f"On {rows} it was worth {-over.estimate.value:.3g} less than "
            f"the shared policy (95 % interval {-over.interval[1]:.3g} to {-over.interval[0]:.3g})",
            err=True,
        )
