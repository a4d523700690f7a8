"""Arguments of earlier versions that became fields of a plan; the error says which."""

from collections.abc import Mapping

from fedopl.base.errors import OptionError

# Arguments of earlier versions: the argument and the plan that each belongs to now, and its name
# there.
_MOVED = {
    "depth": ("policy", "Tree", "depth"),
    "thresholds": ("policy", "Tree", "thresholds"),
    "tree": ("policy", "Tree", "depth"),
    "features": ("policy", "Linear", "features"),
    "oracle": ("policy", "Linear", "oracle"),
    "plan": ("policy", "Linear", "training"),
    "precision": ("policy", "Linear", "precision"),
    "candidates": ("policy", "Finite", "candidates"),
    "evaluation_share": ("evaluation", "EvaluationPlan", "share"),
    "describe": ("evaluation", "EvaluationPlan", "describe"),
    "threads": ("running", "Running", "threads"),
    "journal": ("running", "Running", "journal"),
    "progress": ("running", "Running", "progress"),
}


def refuse_moved(given: Mapping[str, object], called: str) -> None:
    """Refuse arguments of earlier versions; the error names the plan that each belongs to now."""
    unknown = [name for name in given if name not in _MOVED]
    if unknown:
        raise TypeError(f"{called} got an unexpected keyword argument '{unknown[0]}'")
    if given:
        raise OptionError("\n".join(f"{n}: give {_instead(n, v)}" for n, v in given.items()))


def _instead(name: str, value: object) -> str:
    argument, plan, field = _MOVED[name]
    said = repr(value) if isinstance(value, bool | int | float | str) else "..."
    return f"{argument}={plan}({field}={said})"
