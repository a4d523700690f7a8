"""Who may get which action, in words, and what is given to those who may not get it."""

from fedopl.policies.allowed.permissions import Permissions
from fedopl.report.words.numbers import listed
from fedopl.study.study import Study


def permission_sentences(permissions: Permissions, kind: str) -> list[str]:
    """One sentence for each rule, and the action given instead of a forbidden one."""
    found = []
    for rule in permissions.never:
        who = f"Where {rule.when}, nobody gets" if rule.when else "Nobody gets"
        found.append(f"{who} '{rule.action}'.")
    for client, actions in permissions.only.items():
        given = listed([f"'{action}'" for action in actions], joint="or")
        found.append(f"At {client} only {given} can be given.")
    if permissions.only:
        found.append("Examples and pictures of decisions are of a client that can give everything.")
    if any(rule.when for rule in permissions.never):
        found.append("Where a value is missing that a rule asks about, the rule holds.")
    if kind in ("linear", "pairwise", "neural"):
        found.append("The policy takes the largest score of what may be given.")
    else:
        found.append(
            "Where the policy decides on what may not be given, the first action that may, in the "
            "order of the study, is given in its place."
        )
    return found


def arm_sentences(study: Study) -> list[str]:
    """What a constant arm means if not everybody may get its action; empty if all may."""
    limited = study.permissions.limited(study.actions) if study.permissions else ()
    if not limited:
        return []
    arms = listed([f"'{action}'" for action in limited], joint="or")
    return [
        f"No policy gives {arms} to everybody: to value it as a single action, all who may get it "
        "get it, and all others the first action that they may get, in the order of the study."
    ]


def arm_label(study: Study, action: str) -> str:
    """The name of a constant arm on the page."""
    if _is_limited(study, action):
        return f"all who may get '{action}' get it"
    return f"everybody gets '{action}'"


def arm_given(study: Study, action: str, verb: str = "giving") -> str:
    """Giving an action to everybody, or to all who may get it."""
    if _is_limited(study, action):
        return f"{verb} '{action}' to all who may get it"
    return f"{verb} everybody '{action}'"


def best_on_training(study: Study) -> str:
    """How the best arm did on the training rows, in words."""
    limited = study.permissions.limited(study.actions) if study.permissions else ()
    if not limited:
        return "which was best on the rows learned from"
    if len(limited) == len(study.actions):
        return "which was best on the rows learned from, as if everybody could get it"
    return "which was best, of what everybody may get, on the rows learned from"


def _is_limited(study: Study, action: str) -> bool:
    return study.permissions is not None and action in study.permissions.limited(study.actions)
