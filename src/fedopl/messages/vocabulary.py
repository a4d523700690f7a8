"""Every message that may cross the door. There are no others, and none can hold a row.

A field is a whole number, a number, a member of a closed list, or an array whose axes are named
below; no axis is counted in rows. Once released, a message never changes its fields: it gets a
successor with a new code, and `VERSION` goes up.
"""

import enum
from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedopl.base.arrays import FloatArray

VERSION = 1


class Axis(enum.Enum):
    """What an array's axis counts."""

    ACTIONS = "actions"
    PARAMETERS = "parameters"  # features and an intercept
    REGRESSION = "regression"  # features, an intercept and a reward
    FEATURES = "features"  # each action's own features and an intercept
    FOLDS = "folds"
    MODELS = "models"  # one for each fold, and one for rows set apart
    GRAMS = "grams"  # one for each action, or one that serves all
    PAIRS = "pairs"
    LINEAR_POLICIES = "linear policies"
    PAIRWISE_POLICIES = "pairwise policies"
    TREES = "trees"
    TREE_NODES = "tree nodes"  # questions and leaves, filled up with nothing
    NODE_NUMBERS = "node numbers"  # column, cut, and where yes and no lead
    RULES = "rules"
    CUTS = "cuts"
    BINS = "bins"  # below, between and above the cuts
    CHANCE_BINS = "chance bins"  # between the public `CHANCE_CUTS`
    COLUMNS = "columns"  # that a tree may ask about
    CUT_COLUMNS = "cut columns"  # those whose thresholds are not agreed yet
    FINE_CUTS = "fine cuts"
    FINE_BINS = "fine bins"  # below, between and above the fine cuts
    THRESHOLDS = "thresholds"  # of all columns, one behind the other
    OPEN_NODES = "open nodes"  # of a tree that is not finished
    CELLS = "cells"  # of every two columns' bins, one table behind the other
    CELL_NUMBERS = "cell numbers"  # rows, weight, and by action sums and what they rest on
    LEAVES = "leaves"  # of a finished tree
    CLIENTS = "clients"  # whose models are compared
    REPEATS = "repeats"  # a model without each part of the rows, and one from all of them
    TARGETS = "targets"  # clients whose contexts are told from all others'
    MOMENTS = "moments"  # of the largest score of a row, then of each action's
    CANDIDATES = "candidates"  # all policies above, the logging policy and the local policy


Array = FloatArray


class Split(enum.Enum):
    """Which of its rows a client should use."""

    TRAINING = 1
    EVALUATION = 2
    FITTING = 3  # training rows but the first fold
    VALIDATION = 4  # the first fold of the training rows


class RefusalCode(enum.Enum):
    """Why a client does not answer. The code is all that is said."""

    MALFORMED = 1
    WRONG_VERSION = 2
    WRONG_STUDY = 3
    TOO_FEW_ROWS = 4
    SMALL_CELLS = 5
    TOO_MANY_PARAMETERS = 6
    VALUES_FORBIDDEN = 7
    BUDGET_SPENT = 8
    NORM_TOO_LARGE = 9
    NOT_FINITE = 10
    UNSEEN_ACTION = 11
    NO_PROPENSITIES = 12
    NOTHING_TO_SAY = 13
    FAILED = 14
    NOT_IN_STUDY = 15
    BEYOND_DECLARED = 16
    ROWS_ON_DISK = 17


@dataclass(frozen=True, eq=False, kw_only=True)
class Message:
    """What every message carries."""

    code: ClassVar[int]
    study: bytes  # the digest of the study
    exchange: int  # which exchange of the run this belongs to


# --- queries, from the server ----------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Enrol(Message):
    """Ask whether a client takes part, and with how many rows."""

    code: ClassVar[int] = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class SumOutcomes(Message):
    """The sums that outcome models are made from, apart for each fold and action."""

    code: ClassVar[int] = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class SumScores(Message):
    """Score your rows with these outcome models, or with your own if there are none, and sum up."""

    code: ClassVar[int] = 3
    models: Annotated[Array, (Axis.MODELS, Axis.ACTIONS, Axis.PARAMETERS)]
    supported: Annotated[Array, (Axis.MODELS, Axis.ACTIONS)]  # 0 where nobody took the action


@dataclass(frozen=True, eq=False, kw_only=True)
class SumPairs(Message):
    """The same for every pair of actions, rows weighted by what the choice is worth."""

    code: ClassVar[int] = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class ImprovePolicy(Message):
    """Improve these parameters on your scores (Algorithm 2)."""

    code: ClassVar[int] = 6
    round: int
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]
    centre: Annotated[Array, (Axis.PARAMETERS,)]
    scale: Annotated[Array, (Axis.PARAMETERS,)]


@dataclass(frozen=True, eq=False, kw_only=True)
class SlopeOfValue(Message):
    """Ask which way the value of the softened policy rises."""

    code: ClassVar[int] = 7
    temperature: float
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class EstimateValues(Message):
    """Ask what these policies are worth on rows of this split."""

    code: ClassVar[int] = 8
    split: Split
    linear: Annotated[Array, (Axis.LINEAR_POLICIES, Axis.ACTIONS, Axis.PARAMETERS)]
    pairwise: Annotated[Array, (Axis.PAIRWISE_POLICIES, Axis.PAIRS, Axis.PARAMETERS)]
    trees: Annotated[Array, (Axis.TREES, Axis.TREE_NODES, Axis.NODE_NUMBERS)]
    rules: Annotated[Array, (Axis.RULES,)]  # positions among the rules the study names


@dataclass(frozen=True, eq=False, kw_only=True)
class Describe(Message):
    """Ask how one policy's decisions split over groups, and how well the actions are supported."""

    code: ClassVar[int] = 9
    linear: Annotated[Array, (Axis.LINEAR_POLICIES, Axis.ACTIONS, Axis.PARAMETERS)]
    pairwise: Annotated[Array, (Axis.PAIRWISE_POLICIES, Axis.PAIRS, Axis.PARAMETERS)]
    trees: Annotated[Array, (Axis.TREES, Axis.TREE_NODES, Axis.NODE_NUMBERS)]
    rules: Annotated[Array, (Axis.RULES,)]  # positions among the rules the study names
    cuts: Annotated[Array, (Axis.PARAMETERS, Axis.CUTS)]  # of each feature, rising


@dataclass(frozen=True, eq=False, kw_only=True)
class CountBins(Message):
    """Ask how many training rows lie between these cuts, so that thresholds can be agreed."""

    code: ClassVar[int] = 10
    cuts: Annotated[Array, (Axis.CUT_COLUMNS, Axis.FINE_CUTS)]  # of each column, rising


@dataclass(frozen=True, eq=False, kw_only=True)
class SumCells(Message):
    """The sums of scores over every two columns' bins, apart for each open node of a tree."""

    code: ClassVar[int] = 11
    partition: Annotated[Array, (Axis.TREE_NODES, Axis.NODE_NUMBERS)]
    n_cuts: Annotated[Array, (Axis.COLUMNS,)]  # how many of the thresholds are each column's
    cuts: Annotated[Array, (Axis.THRESHOLDS,)]


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueLeaves(Message):
    """Ask what each action is worth in each leaf of a tree, on held-out rows."""

    code: ClassVar[int] = 12
    tree: Annotated[Array, (Axis.TREE_NODES, Axis.NODE_NUMBERS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class TellModels(Message):
    """Ask how the actions were chosen and what came of them, as the client's own models say."""

    code: ClassVar[int] = 13


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareModels(Message):
    """Ask how far these clients' models are from the client's own, at its own contexts."""

    code: ClassVar[int] = 14
    propensities: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    outcomes: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    variances: Annotated[Array, (Axis.CLIENTS, Axis.REPEATS, Axis.ACTIONS)]
    supported: Annotated[Array, (Axis.CLIENTS, Axis.ACTIONS)]  # 0 where there is no model


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassifyContexts(Message):
    """Ask what these classifiers make of own contexts: one for each client to tell from the others.

    On training rows for the next step of Newton's method, on held-out rows for its accuracy.
    Everybody is asked alike, whether a target or not.
    """

    code: ClassVar[int] = 15
    split: Split
    parameters: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class TellMoments(Message):
    """Ask how large scores are: what regret bounds call the variance of policies' values."""

    code: ClassVar[int] = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class SumFitting(Message):
    """The sums of the scores that are there, over training rows without the first fold.

    What they are for can then be tried on the first fold.
    """

    code: ClassVar[int] = 17


# --- answers, from a client ------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Refusal(Message):
    """No, and a code for why."""

    code: ClassVar[int] = 64
    reason: RefusalCode


@dataclass(frozen=True, eq=False, kw_only=True)
class Enrolment(Message):
    """Yes, with this many rows to learn from."""

    code: ClassVar[int] = 65
    n_rows: int
    rows_per_action: Annotated[Array, (Axis.ACTIONS,)]


@dataclass(frozen=True, eq=False, kw_only=True)
class OutcomeSums(Message):
    """Σ w·z zᵀ with z = (x, 1, y), and Σ w², for each fold and action."""

    code: ClassVar[int] = 66
    sums: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS, Axis.REGRESSION, Axis.REGRESSION)]
    squared_weights: Annotated[Array, (Axis.FOLDS, Axis.ACTIONS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreSums(Message):
    """Weighted means over rows: φφᵀ, φ·Γ̂(a) and Γ̂(a)², and the share each rests on."""

    code: ClassVar[int] = 68
    grams: Annotated[Array, (Axis.GRAMS, Axis.FEATURES, Axis.FEATURES)]
    products: Annotated[Array, (Axis.ACTIONS, Axis.FEATURES)]
    squares: Annotated[Array, (Axis.ACTIONS,)]
    shares: Annotated[Array, (Axis.ACTIONS,)]


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSums(Message):
    """Means of w·xxᵀ and w·x·s, with s the better of two actions and w what it is better by."""

    code: ClassVar[int] = 69
    grams: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS, Axis.PARAMETERS)]
    products: Annotated[Array, (Axis.PAIRS, Axis.PARAMETERS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class ImprovedPolicy(Message):
    """The parameters after the local steps."""

    code: ClassVar[int] = 70
    parameters: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Slope(Message):
    """The gradient of the softened policy's value."""

    code: ClassVar[int] = 71
    gradient: Annotated[Array, (Axis.ACTIONS, Axis.PARAMETERS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Values(Message):
    """Means of the candidates' scores and the covariances of those means."""

    code: ClassVar[int] = 72
    n_rows: int
    degrees_of_freedom: int
    means: Annotated[Array, (Axis.CANDIDATES,)]
    covariances: Annotated[Array, (Axis.CANDIDATES, Axis.CANDIDATES)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Description(Message):
    """Rounded counts of training rows, and how many rows each action's value rests on."""

    code: ClassVar[int] = 73
    decided: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS)]  # by the policy
    taken: Annotated[Array, (Axis.PARAMETERS, Axis.BINS, Axis.ACTIONS)]  # as logged
    chances: Annotated[Array, (Axis.ACTIONS, Axis.CHANCE_BINS)]  # rows by propensity
    effective_rows: Annotated[Array, (Axis.ACTIONS,)]  # (Σw)²/Σw² over takers, w = 1/propensity


@dataclass(frozen=True, eq=False, kw_only=True)
class BinCounts(Message):
    """Rounded counts of training rows."""

    code: ClassVar[int] = 74
    counts: Annotated[Array, (Axis.CUT_COLUMNS, Axis.FINE_BINS)]


@dataclass(frozen=True, eq=False, kw_only=True)
class CellSums(Message):
    """By cell: rows, their share of all weight, and by action the share of the mean score.

    Where not every row has every score, the shares of weight that have one follow. Small cells are
    hidden among others; `lost` is how far that can move the value of any tree at most.
    """

    code: ClassVar[int] = 75
    cells: Annotated[Array, (Axis.OPEN_NODES, Axis.CELLS, Axis.CELL_NUMBERS)]
    lost: Annotated[Array, (Axis.OPEN_NODES,)]


@dataclass(frozen=True, eq=False, kw_only=True)
class LeafValues(Message):
    """By leaf: its share of held-out rows, and the mean score of each action with its variance.

    Zero rows where a leaf, or an action in it, has too few of them; counts are rounded by chance.
    """

    code: ClassVar[int] = 76
    counts: Annotated[Array, (Axis.LEAVES,)]
    shares: Annotated[Array, (Axis.LEAVES,)]
    rows: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS)]
    degrees_of_freedom: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS)]
    means: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS)]
    variances: Annotated[Array, (Axis.LEAVES, Axis.ACTIONS)]  # of the means


@dataclass(frozen=True, eq=False, kw_only=True)
class Models(Message):
    """Own models: softmax scores of the actions, and rewards by action with their variances."""

    code: ClassVar[int] = 77
    propensities: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    outcomes: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS, Axis.PARAMETERS)]
    variances: Annotated[Array, (Axis.REPEATS, Axis.ACTIONS)]  # of rewards about their models
    supported: Annotated[Array, (Axis.ACTIONS,)]  # 0 where too few rows took the action


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelShifts(Message):
    """Divergences of the client's models from each of the others', less what is noise in them."""

    code: ClassVar[int] = 78
    compared: Annotated[Array, (Axis.CLIENTS,)]  # 0 where it would have told of a few rows
    propensity_kl: Annotated[Array, (Axis.CLIENTS,)]
    propensity_kl_noise: Annotated[Array, (Axis.CLIENTS,)]  # what was subtracted
    propensity_kl_variance: Annotated[Array, (Axis.CLIENTS,)]
    propensity_tv: Annotated[Array, (Axis.CLIENTS,)]
    propensity_tv_variance: Annotated[Array, (Axis.CLIENTS,)]
    outcome_kl: Annotated[Array, (Axis.CLIENTS,)]
    outcome_kl_noise: Annotated[Array, (Axis.CLIENTS,)]
    outcome_kl_variance: Annotated[Array, (Axis.CLIENTS,)]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClassifierSums(Message):
    """By target, means over training rows with σ = σ(θᵀx), or the share of held-out rows taken.

    A row is taken for the target's if θᵀx > 0. What was not asked for is zero.
    """

    code: ClassVar[int] = 79
    told: Annotated[Array, (Axis.TARGETS,)]  # 0 where it would have told of a few rows
    loss: Annotated[Array, (Axis.TARGETS,)]  # log(1 + exp(θᵀx))
    pulls: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS)]  # σ·x
    hessian: Annotated[Array, (Axis.TARGETS, Axis.PARAMETERS, Axis.PARAMETERS)]  # σ(1 − σ)·xxᵀ
    target_share: Annotated[Array, (Axis.TARGETS,)]  # rounded by chance
    target_share_variance: Annotated[Array, (Axis.TARGETS,)]


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreMoments(Message):
    """Means of squared scores over training rows: of the largest in each row, and by action.

    The first of each is of max_a Γ̂(a)² over the scores a row has, the others of Γ̂(a)² over the
    rows that have it. What would tell of a few rows is zero.
    """

    code: ClassVar[int] = 80
    told: Annotated[Array, (Axis.MOMENTS,)]  # 0 where it would have told of a few rows
    rows: Annotated[Array, (Axis.MOMENTS,)]
    degrees_of_freedom: Annotated[Array, (Axis.MOMENTS,)]
    means: Annotated[Array, (Axis.MOMENTS,)]
    variances: Annotated[Array, (Axis.MOMENTS,)]  # of the means


ANSWERS: dict[type[Message], type[Message]] = {
    Enrol: Enrolment,
    SumOutcomes: OutcomeSums,
    SumScores: ScoreSums,
    SumPairs: PairSums,
    ImprovePolicy: ImprovedPolicy,
    SlopeOfValue: Slope,
    EstimateValues: Values,
    Describe: Description,
    CountBins: BinCounts,
    SumCells: CellSums,
    ValueLeaves: LeafValues,
    TellModels: Models,
    CompareModels: ModelShifts,
    ClassifyContexts: ClassifierSums,
    TellMoments: ScoreMoments,
    SumFitting: ScoreSums,
}
MESSAGES: dict[int, type[Message]] = {
    message.code: message for pair in ANSWERS.items() for message in pair
} | {Refusal.code: Refusal}

# A feature is cut in three places; propensities at these.
N_CUTS = 3
CHANCE_CUTS = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
# Thresholds are agreed from counts in this many bins.
N_FINE_BINS = 256

# Models are told as fitted without each of so many parts of the rows, and from all of them.
N_PARTS = 5
MOST_CLIENTS = 1000  # whose models are compared in one query
MOST_TARGETS = 10  # whose contexts are told from all others' at once

MOST_DIAGNOSED = 128  # policies that one query may at least ask about in a study that diagnoses
# Every client adds two candidates to those it is asked about: the logging policy and its own.
N_OWN_CANDIDATES = 2
