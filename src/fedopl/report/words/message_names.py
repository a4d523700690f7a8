"""What messages are called and hold, in words."""

from fedopl.messages import codec
from fedopl.messages.vocabulary import (
    ANSWERS,
    Axis,
    ClassifyContexts,
    CompareModels,
    CountBins,
    Describe,
    Enrol,
    EstimateValues,
    ImprovePolicy,
    Message,
    SlopeOfValue,
    SumCells,
    SumFitting,
    SumOutcomes,
    SumPairs,
    SumScores,
    TellModels,
    TellMoments,
    ValueLeaves,
)

# What is asked, and what the answer holds.
QUERIES: dict[type[Message], tuple[str, str]] = {
    Enrol: ("Who takes part", "how many rows there are, and how many took each action"),
    SumOutcomes: ("Sums for outcome models", "sums of squares and products, by fold and action"),
    SumScores: ("Sums of scores", "means of squares and products of features and scores"),
    SumFitting: ("Sums to fit with", "the same means, over training rows but the first fold"),
    SumPairs: ("Sums for pairs of actions", "the same means, for each pair of actions"),
    ImprovePolicy: ("Steps on the policy", "the policy's parameters after steps on own rows"),
    SlopeOfValue: ("Which way is better", "the slope of the value, by parameter"),
    CountBins: ("Rows between thresholds", "rounded counts of rows, for each number"),
    SumCells: ("Sums over a grid", "sums of scores over the cells of every two columns"),
    EstimateValues: ("What policies are worth", "means of values, and how precise they are"),
    Describe: ("How decisions split", "rounded counts by group, and effective rows"),
    ValueLeaves: ("What leaves are worth", "by leaf: its share of rows, and means of scores"),
    TellModels: ("What clients' models say", "how actions were chosen, and rewards by action"),
    CompareModels: ("How far models differ", "differences from each client, less their noise"),
    ClassifyContexts: (
        "Whose contexts these are",
        "slopes of classifiers, and rounded shares",
    ),
    TellMoments: ("How large scores are", "means of squared scores, and how precise they are"),
}
BY_NAME: dict[str, type[Message]] = {query.__name__: query for query in QUERIES}
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
    return QUERIES[BY_NAME[query]][0]


def content_of(query: str) -> str:
    """What its answer holds."""
    return QUERIES[BY_NAME[query]][1]


def axes_of(query: str) -> list[str]:
    """Each array of its answer with what it is counted in, as in 'means: policies compared'."""
    fields = codec.FIELDS[ANSWERS[BY_NAME[query]]]
    return [
        f"{name.replace('_', ' ')}: {' × '.join(AXES[axis] for axis in axes)}"
        for name, axes in fields
        if isinstance(axes, tuple)
    ]
