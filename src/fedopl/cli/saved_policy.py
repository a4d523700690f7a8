"""The policy that a verb is about: a saved one, or that of a finished run."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
