"""What messages are called and hold, in words."""

from fedopl.messages import codec
from fedopl.messages.message import Axis
from fedopl.messages.vocabulary import QUERY_NAMED

AXES = {
    Axis.ACTIONS: "actions",
    Axis.PARAMETERS: "(features + 1)",
    Axis.REGRESSION: "(features + 2)",
    Axis.FEATURES: "(features + 1)",
    Axis.FOLDS: "folds",
    Axis.GRAMS: "(actions or 1)",
    Axis.PAIRS: "pairs of actions",
    Axis.BINS: "bins",
    Axis.CHANCE_BINS: "bins of propensity",
    Axis.CANDIDATES: "policies compared",
    Axis.CUT_COLUMNS: "columns of numbers",
    Axis.FINE_BINS: "fine bins",
    Axis.OPEN_NODES: "places in the tree",
    Axis.CELLS: "cells",
    Axis.CELL_NUMBERS: "numbers of a cell",
    Axis.LEAVES: "leaves",
    Axis.CLIENTS: "clients",
    Axis.REPEATS: "repeated fits",
    Axis.TARGETS: "clients told apart",
    Axis.MOMENTS: "(actions + 1)",
}


def title_of(query: str) -> str:
    """What a query is called on the page."""
    return QUERY_NAMED[query].title


def content_of(query: str) -> str:
    """What its answer holds."""
    return QUERY_NAMED[query].content


def axes_of(query: str) -> list[str]:
    """Each array of its answer with what it is counted in, as in 'means: policies compared'."""
    fields = codec.FIELDS[QUERY_NAMED[query].answer]
    return [
        f"{name.replace('_', ' ')}: {' × '.join(AXES[axis] for axis in axes)}"
        for name, axes in fields
        if isinstance(axes, tuple)
    ]
