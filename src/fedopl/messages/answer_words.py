"""What an answer holds in a study, in the words of previews, of reports and of the owner's page."""

from collections.abc import Mapping
from typing import Any

from fedopl.messages import codec
from fedopl.messages.about_masks import is_masked
from fedopl.messages.message import Axis, Query
from fedopl.messages.sensitivity import declared_moves
from fedopl.study.private.added_up import most_lacking
from fedopl.study.study import Study

_AXES = {
    Axis.ACTIONS: "actions",
    Axis.PARAMETERS: "(features + 1)",
    Axis.TERMS: "(features + 1)",
    Axis.REGRESSION: "(features + 2)",
    Axis.FEATURES: "(features + 1)",
    Axis.FOLDS: "folds",
    Axis.GRAMS: "(actions or 1)",
    Axis.PAIRS: "pairs of actions",
    Axis.VERSIONS: "versions",
    Axis.FEATURE_PAIRS: "pairs of features",
    Axis.JUMPS_TOLD: "jumps",
    Axis.JUMP_NUMBERS: "numbers of a jump",
    Axis.BINS: "bins",
    Axis.CHANCE_BINS: "bins of propensity",
    Axis.CANDIDATES: "policies compared",
    Axis.CUT_COLUMNS: "columns of numbers",
    Axis.FINE_BINS: "fine bins",
    Axis.OPEN_NODES: "places in the tree",
    Axis.CELLS: "cells",
    Axis.FIT_NUMBERS: "numbers of fit",
    Axis.PRODUCTS_TOLD: "products of features",
    Axis.INTERACTION_NUMBERS: "numbers of a product",
    Axis.CELL_NUMBERS: "numbers of a cell",
    Axis.LEAVES: "everybody or leaves",
    Axis.PARTS: "parts",
    Axis.QUESTIONS: "questions",
    Axis.NEAR_BINS: "narrow bins",
    Axis.CLIENTS: "clients",
    Axis.REPEATS: "repeated fits",
    Axis.TARGETS: "clients distinguished",
    Axis.MOMENTS: "(actions + 1)",
    Axis.TARGET_VALUES: "(actions + 1)",
    Axis.BALANCED: "2 · features",
    Axis.REGIONS: "regions",
    Axis.NETWORK_NUMBERS: "weights of the network",
    Axis.NUMBERS: "numbers",
    Axis.SESSION_KEYS: "keys",
    Axis.KEY_WORDS: "words",
    Axis.SIGNATURE_WORDS: "words",
    Axis.HOLDERS: "clients that hold shares",
    Axis.MASK_SECRETS: "secrets",
    Axis.SUMS: "sums",
    Axis.SEALED_WORDS: "words",
}
# If the study has a basis.
_TERMS = {
    Axis.REGRESSION: "(terms + 2)",
    Axis.FEATURES: "(terms + 1)",
    Axis.TERMS: "(terms + 1)",
}


def answer_in_words(query: Query[Any], study: Study) -> str:
    """What the answer holds, what that is counted in, and how it leaves."""
    counted = "; ".join(arrays_in_words(type(query), study))
    return f"{query.content_in(study)} ({counted}){_how_it_leaves(query, study)}"


def arrays_in_words(query: type[Query[Any]], study: Study) -> list[str]:
    """Each array of an answer with its unit of counting, as in 'means: policies compared'.

    Single numbers are named only if the answer has no arrays.
    """
    words: Mapping[Axis, str] = _AXES | _TERMS if study.basis else _AXES
    left_out = {"study", "exchange", *query.left_out_in(study)}
    fields = {name: kind for name, kind in codec.FIELDS[query.answer] if name not in left_out}
    arrays = {name: axes for name, axes in fields.items() if isinstance(axes, tuple)}
    counted = {name: " × ".join(words[axis] for axis in axes) for name, axes in arrays.items()}
    single = dict.fromkeys(fields, "one number")
    return [f"{name.replace('_', ' ')}: {of}" for name, of in (counted or single).items()]


def _how_it_leaves(query: Query[Any], study: Study) -> str:
    moves = declared_moves(query.answer).values()
    noise = ", with noise" if study.privacy and any(one and one.noise for one in moves) else ""
    if is_masked(query, study):
        whom = "the clients that answer" if most_lacking(study) else "all clients"
        return f". It leaves under masks{noise}: only the total over {whom} can be read"
    return noise
