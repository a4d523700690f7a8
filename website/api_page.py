"""The text of the API reference: every public name, from its docstring, fields and signature."""

import ast
import dataclasses
import inspect
from collections.abc import Iterator, Mapping

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import fedopl

INTRODUCTION = """\
# API reference

What `import fedopl` offers, name by name. Names that are not here are private and may change.
[Keys, commands and files](reference.md) has the same settings as a study's file writes them.
"""

OF_A_CLASS = "{heading_level: 4}"

# Every public name once; of classes, the methods and properties to show.
POLICY = ("decide", "save", "export")
GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Read": {
        "Schema": (),
        "read_logged": (),
        "read_contexts": (),
        "LoggedData": (),
        "Contexts": (),
    },
    "Learn": {
        "learn": (),
        "ClientFactory": (),
        "DaskEngine": (),
        "SparkEngine": (),
        "Running": (),
        "PolicyLearner": ("fit", "predict", "score"),
    },
    "Results": {
        "Run": (
            *("verdict", "recommendation", "refusals", "resolve", "at_budget", "at_price"),
            *("join", "leave", "save"),
            *("plot_values", "plot_gains", "plot_clients", "plot_policy", "plot_decisions"),
            "plot_overlap",
        ),
        "load_run": (),
        "write_report": (),
    },
    "Policies": {
        "load_policy": (),
        "LinearPolicy": (*POLICY, "scores", "coefficients", "intercepts", "term_names"),
        "PairwisePolicy": POLICY,
        "TreePolicy": (*POLICY, "leaves", "drawing"),
        "NeuralPolicy": (*POLICY, "scores"),
    },
    "Settings of the policy": dict.fromkeys(
        ("Linear", "Tree", "Neural", "Finite", "Basis", "TrainingPlan"), ()
    ),
    "Settings of the study": {
        "NuisancePlan": (),
        "EvaluationPlan": (),
        "JoiningPlan": (),
        "Costs": (),
        "Budget": (),
        "Guardrail": (),
        "Declared": (),
        "Ranges": (),
        "PrivacyPlan": (),
        "mixture": ("empirical", "uniform", "given", "skewed", "path", "minimax", "skewness"),
    },
    "Studies in files": dict.fromkeys(
        ("Study", "read_study", "check", "run", "evaluate", "Limits"), ()
    ),
    "Scores of one client": {
        "cross_fit": (),
        "Nuisances": (),
        "aipw_scores": (),
        "ipw_scores": (),
        "dm_scores": (),
        "self_normalised_aipw_scores": (),
        "self_normalised_ipw_scores": (),
        "Scores": (),
        "overlap": (),
        "Overlap": ("cautions", "to_frame"),
        "estimate_value": (),
        "Estimate": ("interval",),
        "search_tree": (),
    },
    "Errors": dict.fromkeys(
        (
            *("FedoplError", "DataError", "FederationError", "ModelError", "OptionError"),
            *("PolicyError", "PrivacyError", "SchemaError", "StorageError", "StudyError"),
            "FedoplWarning",
        ),
        (),
    ),
}


def text() -> str:
    """The page, with a line for mkdocstrings where a docstring belongs."""
    parts = [INTRODUCTION]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name, members in names.items():
            parts.append(f"::: fedopl.{name}\n")
            if rows := [*fields_of(getattr(fedopl, name))]:
                parts += ["| field | default | meaning |\n|---|---|---|\n" + "".join(rows)]
            parts += [f"::: fedopl.{name}.{one}\n    options: {OF_A_CLASS}\n" for one in members]
    return "\n".join(parts)


def fields_of(thing: object) -> Iterator[str]:
    """One row for each field of a record; none of anything else."""
    if not isinstance(thing, type):
        return
    if issubclass(thing, BaseModel):
        for name, field in thing.model_fields.items():
            yield _row(name, _default(field), field.description)
    elif dataclasses.is_dataclass(thing) and "Args:" not in (thing.__doc__ or ""):
        comments = {name: said for one in reversed(thing.__mro__) for name, said in _comments(one)}
        for part in dataclasses.fields(thing):
            given = part.default is not dataclasses.MISSING
            made = part.default_factory is not dataclasses.MISSING
            default = f"`{part.default!r}`" if given else "empty" if made else "required"
            yield _row(part.name, default, comments.get(part.name))


def _row(name: str, default: str, meaning: str | None) -> str:
    cells = (f"`{name}`", default, meaning or "–")
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


def _default(field: FieldInfo) -> str:
    if field.default is not PydanticUndefined:
        return f"`{field.default!r}`" if field.default != () else "none"
    return "required" if field.default_factory is None else "none"


def _comments(thing: type) -> Iterator[tuple[str, str]]:
    """What is said beside each field of a class, in its source."""
    if thing.__module__.partition(".")[0] != "fedopl":
        return
    source = inspect.getsource(thing)
    lines = source.splitlines()
    (definition,) = ast.parse(source).body
    for node in ast.iter_child_nodes(definition):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _, mark, said = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")
            if mark:
                yield node.target.id, said
