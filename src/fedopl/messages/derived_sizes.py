"""What follows from a study: which queries it needs, and how large their arrays are.

Many clients of one study may be in one process, so it is worked out once for all of them.
"""

from functools import lru_cache

from fedopl.messages.codec import Decoder, Sizes
from fedopl.messages.vocabulary import (
    CHANCE_CUTS,
    MOST_CLIENTS,
    MOST_DIAGNOSED,
    MOST_TARGETS,
    N_CUTS,
    N_FINE_BINS,
    N_OWN_CANDIDATES,
    N_PARTS,
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
from fedopl.policies.pairwise import action_pairs
from fedopl.policies.trees.growing import n_levels
from fedopl.policies.trees.nodes import MOST_NODES, NODE_NUMBERS
from fedopl.policies.trees.tree_plan import MOST_BINS
from fedopl.study.study import Study

# What follows from so many studies is kept.
STUDIES_AT_HAND = 16


@lru_cache(STUDIES_AT_HAND)
def queries_of(study: Study) -> frozenset[type[Message]]:
    """The queries this study needs; a client answers no others."""
    needed: set[type[Message]] = {Enrol, SumScores, EstimateValues}
    if study.nuisances.kind == "federated":
        needed.add(SumOutcomes)
    if study.describe:
        needed.add(Describe)
    if study.diagnose:
        needed |= {TellModels, CompareModels, ClassifyContexts, TellMoments}
    if study.mixture.kind == "path":
        needed.add(SumFitting)
    if study.policy == "tree" and study.tree.thresholds == "grid":
        needed |= {CountBins, SumCells} if study.cut_columns else {SumCells}
    if study.values_leaves:
        needed.add(ValueLeaves)
    if study.policy == "linear":
        own: dict[str, type[Message]] = {
            "csoaa-sgd": ImprovePolicy,
            "csoaa-vw": ImprovePolicy,
            "wap": SumPairs,
            "direct": SlopeOfValue,
        }
        needed |= {own[study.oracle]} if study.oracle in own else set()
    return frozenset(needed)


@lru_cache(STUDIES_AT_HAND)
def decoder_of(study: Study) -> Decoder:
    """What reads the messages of this study."""
    return Decoder(axis_sizes(study))


def axis_sizes(study: Study) -> Sizes:
    """How long each axis may be in this study; every size is agreed, and none depends on rows."""
    n_actions, n_features, folds = study.n_actions, study.n_features, study.nuisances.folds
    own = n_features // n_actions if study.policy_features == "blocks" else n_features
    most = most_candidates(study)
    exactly = {
        Axis.ACTIONS: n_actions,
        Axis.PARAMETERS: n_features + 1,
        Axis.REGRESSION: n_features + 2,
        Axis.FEATURES: own + 1,
        Axis.FOLDS: folds,
        Axis.PAIRS: len(action_pairs(n_actions)),
        Axis.CUTS: N_CUTS,
        Axis.BINS: N_CUTS + 1,
        Axis.CHANCE_BINS: len(CHANCE_CUTS) + 1,
        Axis.NODE_NUMBERS: NODE_NUMBERS,
        Axis.COLUMNS: len(study.columns),
        Axis.CUT_COLUMNS: len(study.cut_columns),
        Axis.FINE_CUTS: N_FINE_BINS - 1,
        Axis.FINE_BINS: N_FINE_BINS,
        Axis.REPEATS: N_PARTS + 1,
        Axis.MOMENTS: n_actions + 1,
    }
    sizes = {axis: range(size, size + 1) for axis, size in exactly.items()}
    sizes[Axis.MODELS] = range(0, folds + 2)
    sizes[Axis.CLIENTS] = range(1, MOST_CLIENTS + 1)
    sizes[Axis.TARGETS] = range(1, MOST_TARGETS + 1)
    sizes[Axis.GRAMS] = range(1, n_actions + 1)
    sizes[Axis.TREE_NODES] = range(1, MOST_NODES + 1)
    sizes[Axis.LEAVES] = range(1, 2**study.tree.depth + 1)
    sizes[Axis.OPEN_NODES] = range(1, 2 ** (n_levels(study.tree.depth) - 1) + 1)
    sizes[Axis.THRESHOLDS] = range(0, len(study.columns) * MOST_BINS)
    sizes[Axis.CELLS] = range(1, study.most_cells + 1)
    sizes[Axis.CELL_NUMBERS] = range(2 + n_actions, 2 + 2 * n_actions + 1)
    for axis in (Axis.LINEAR_POLICIES, Axis.PAIRWISE_POLICIES, Axis.TREES, Axis.RULES):
        sizes[axis] = range(0, most + 1)
    sizes[Axis.CANDIDATES] = range(N_OWN_CANDIDATES, most + N_OWN_CANDIDATES + 1)
    return sizes


def most_candidates(study: Study) -> int:
    """How many policies one query may ask about: constant arms, the study's own, and two more.

    Where joining is judged, there are those of coalitions, mixtures and contrasts, too.
    """
    own = study.n_actions + len(study.candidates) + 2
    return max(own, MOST_DIAGNOSED) if study.diagnose else own
