"""The sizes of arrays in a study's messages: agreed sizes, none of which depends on rows."""

from functools import lru_cache
from math import comb

from fedopl.messages.about_differences import MOST_CLIENTS, MOST_TARGETS, N_PARTS
from fedopl.messages.about_masks import MaskedSums, holding_in, n_shared_sums
from fedopl.messages.about_target import N_REGIONS
from fedopl.messages.codec import Decoder, Sizes, most_bytes
from fedopl.messages.evaluation.description import CHANCE_CUTS, N_CUTS
from fedopl.messages.evaluation.interactions_left import INTERACTION_NUMBERS, MOST_PRODUCTS_TOLD
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS
from fedopl.messages.evaluation.policy_fields import most_in_query, n_versions_in
from fedopl.messages.evaluation.policy_values import (
    N_OWN_CANDIDATES,
    N_PRICES,
    N_TREES,
    n_points,
)
from fedopl.messages.learning.term_screening import JUMP_NUMBERS, MOST_JUMPS_TOLD
from fedopl.messages.message import Axis
from fedopl.messages.refusal import Refusal
from fedopl.messages.trees.bin_counts import N_FINE_BINS
from fedopl.messages.trees.cell_sums import fewest_numbers
from fedopl.messages.vocabulary import queries_of
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.neural import NeuralPolicy, network_size, widths_in
from fedopl.policies.pairwise import action_pairs
from fedopl.policies.trees.growing import n_levels
from fedopl.policies.trees.nodes import MOST_NODES, NODE_NUMBERS
from fedopl.policies.trees.second_look import NEAR_BINS
from fedopl.policies.trees.tree_plan import MOST_BINS
from fedopl.secure.keys import KEY_BYTES, SIGNATURE_BYTES
from fedopl.secure.masks import N_SECRETS, SEAL_BYTES, SHARE_BYTES, WORD
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS
from fedopl.study.private.added_up import adds_under_masks, most_lacking, parties_of
from fedopl.study.screened_study import with_most_found
from fedopl.study.study import Study


# Cached, as many clients of one study may run in one process.
@lru_cache(16)
def decoder_of(study: Study) -> Decoder:
    """The decoder for messages of this study."""
    return Decoder(axis_sizes(study))


@lru_cache(16)
def largest_query(study: Study) -> int:
    """The bytes of the largest query of this study, for any pairs that screening may find."""
    largest = with_most_found(study)
    sizes = axis_sizes(largest)
    return max(most_bytes(query, sizes) for query in queries_of(largest))


@lru_cache(16)
def largest_answer(study: Study) -> int:
    """The bytes of the largest answer in this study, whatever pairs it may come to have."""
    largest = with_most_found(study)
    sizes = axis_sizes(largest)
    answers = {query.answer for query in queries_of(largest)} | {MaskedSums, Refusal}
    return max(most_bytes(answer, sizes) for answer in answers)


def axis_sizes(study: Study) -> Sizes:
    """How long each axis may be in this study; every size is agreed, and none depends on rows."""
    n_actions, n_features, folds = study.n_actions, study.n_features, study.nuisances.folds
    own = n_features // n_actions if study.linear.features == "blocks" else study.n_terms
    most = most_in_query(study)
    exactly = {
        Axis.ACTIONS: n_actions,
        Axis.PARAMETERS: n_features + 1,
        Axis.TERMS: study.n_terms + 1,
        Axis.REGRESSION: study.n_terms + 2,
        Axis.FEATURES: own + 1,
        Axis.FOLDS: folds,
        Axis.VERSIONS: len(study.left_out),
        Axis.FEATURE_PAIRS: comb(n_features, 2),
        Axis.TWO: 2,
        Axis.PAIRS: len(action_pairs(n_actions)),
        Axis.CUTS: N_CUTS,
        Axis.BINS: N_CUTS + 1,
        Axis.CHANCE_BINS: len(CHANCE_CUTS) + 1,
        Axis.NODE_NUMBERS: NODE_NUMBERS,
        Axis.COLUMNS: len(study.columns),
        Axis.CUT_COLUMNS: len(study.cut_columns),
        Axis.FINE_CUTS: N_FINE_BINS - 1,
        Axis.FINE_BINS: N_FINE_BINS,
        Axis.NEAR_CUTS: NEAR_BINS - 1,
        Axis.NEAR_BINS: NEAR_BINS,
        Axis.REPEATS: N_PARTS + 1,
        Axis.MOMENTS: n_actions + 1,
        Axis.TARGET_VALUES: n_actions + 1,
        Axis.BALANCED: 2 * n_features,
        Axis.REGIONS: N_REGIONS,
        Axis.JUMPS_TOLD: MOST_JUMPS_TOLD,
        Axis.JUMP_NUMBERS: len(JUMP_NUMBERS),
        Axis.CORNER_NUMBERS: len(JUMP_NUMBERS) - 2,
        Axis.FIT_NUMBERS: len(FIT_NUMBERS),
        Axis.PRODUCTS_TOLD: MOST_PRODUCTS_TOLD,
        Axis.INTERACTION_NUMBERS: len(INTERACTION_NUMBERS),
        Axis.NUMBERS: len(study.privacy.measured) if study.privacy else 0,
        Axis.PARTIES: len(parties_of(study)),
        Axis.SESSION_KEYS: 1,
        Axis.KEY_WORDS: KEY_BYTES // 8,
        Axis.SIGNATURE_WORDS: SIGNATURE_BYTES // 8,
        Axis.LINEAR_NUMBERS: LinearPolicy.numbers_shape(study)[1],
        Axis.HOLDERS: holding_in(study).n_holders if most_lacking(study) else 0,
        Axis.MASK_SECRETS: N_SECRETS * n_shared_sums(study),
        Axis.SUMS: n_shared_sums(study),
        Axis.SEALED_WORDS: (SHARE_BYTES + SEAL_BYTES) // 8,
        Axis.NEURAL_NUMBERS: NeuralPolicy.numbers_shape(study)[0],
        Axis.NETWORK_NUMBERS: network_size(widths_in(study)) if study.hidden else 0,
    }
    sizes = {axis: range(size, size + 1) for axis, size in exactly.items()}
    sizes[Axis.MODELS] = range(0, max(folds + 1, study.n_outcome_models) + 1)
    sizes[Axis.CLIENTS] = range(1, MOST_CLIENTS + 1)
    sizes[Axis.TARGETS] = range(1, MOST_TARGETS + 1)
    sizes[Axis.GRAMS] = range(1, n_actions + 1)
    sizes[Axis.TREE_NODES] = range(1, MOST_NODES + 1)
    leaves = 2**study.tree.depth if study.values_leaves else 1
    sizes[Axis.LEAVES] = range(1, leaves + 1)
    sizes[Axis.LEAVES_NODES] = range(0, 2 * leaves if study.values_leaves else 1)
    together = (study.target is not None and study.target.may_balance_jointly) * 1
    sizes[Axis.UNITS] = range(0, together * (n_features + 1) + 1, n_features + 1)
    sizes[Axis.SLOPES] = range(0, together * 2 * n_features + 1, 2 * n_features)
    versions = len(study.left_out)
    sizes[Axis.QUESTIONS] = range(1, versions * (2**study.tree.depth - 1) + 1)
    sizes[Axis.OPEN_NODES] = range(1, versions * 2 ** (n_levels(study.tree.depth) - 1) + 1)
    sizes[Axis.THRESHOLDS] = range(0, len(study.columns) * MOST_BINS)
    basis = study.basis
    pairs = len(study.left_out) * basis.screened_pairs if basis else 0
    thresholds = len(study.left_out) * basis.screened_thresholds if basis else 0
    sizes[Axis.FOUND_PAIRS] = range(0, pairs + 1)
    sizes[Axis.FOUND_THRESHOLDS] = range(0, thresholds + 1)
    sizes[Axis.FOUND_TERMS] = range(0, pairs + thresholds + 1)
    sizes[Axis.CELLS] = range(1, study.most_cells + 1)
    fewest = fewest_numbers(study)
    sizes[Axis.CELL_NUMBERS] = range(fewest, fewest + n_actions + 1)
    own_folds = folds if study.evaluation.is_cross_fitted else 0
    sizes[Axis.OWN_FOLDS] = range(0, own_folds + 1, own_folds or 1)
    sizes[Axis.ASKED_BY_FOLD] = range(0, (max(most, N_TREES) if own_folds else 0) + 1)
    at_once = most * n_versions_in(study)
    for axis in (Axis.LINEAR_POLICIES, Axis.PAIRWISE_POLICIES, Axis.TREES, Axis.RULES):
        sizes[axis] = range(0, at_once + 1)
    if study.budget and study.policy.on_grid:
        sizes[Axis.TREES] = range(0, max(at_once, N_TREES * folds) + 1)
    n_prices = N_PRICES if study.budget else 0
    sizes[Axis.PRICES] = range(0, n_prices + 1, n_prices or 1)
    in_leaves = 1 if study.evaluation.is_cross_fitted else n_actions
    sizes[Axis.PARTS] = range(1, max(1, n_points(study), study.values_leaves * in_leaves) + 1)
    sizes[Axis.NEURAL_POLICIES] = range(0, at_once + 1 if study.hidden else 1)
    sizes |= _sizes_of_others(study, most)
    beside = N_OWN_CANDIDATES + study.personalises
    sizes[Axis.CANDIDATES] = range(N_OWN_CANDIDATES, most + beside + 1)
    sizes[Axis.MASKED] = range(0, _most_masked(study, sizes) + 1)
    return sizes


def _sizes_of_others(study: Study, most: int) -> Sizes:
    """How long the axes of what all others learned may be: nothing, or what the policy takes."""
    kind = study.policy.kind if study.personalises else "none"
    lines, numbers, n_terms = {
        "linear": (study.n_actions, LinearPolicy.numbers_shape(study)[1], study.n_terms + 1),
        "tree": (study.n_actions, 2**study.tree.depth, 0),
        "finite": (1, most, 0),
    }.get(kind, (0, 0, 0))
    n_versions = len(study.left_out) if study.personalises else 0
    return {
        Axis.OTHERS_VERSIONS: range(0, n_versions + 1, n_versions or 1),
        Axis.OTHERS: range(0, lines + 1, lines or 1),
        Axis.OTHERS_NUMBERS: range(0, numbers + 1),
        Axis.OTHERS_TERMS: range(0, n_terms + 1, n_terms or 1),
        Axis.OTHERS_NODES: range(0, 2 * numbers if kind == "tree" else 1),
        Axis.STRENGTHS: range(0, len(RIDGE_STRENGTHS) + 1, len(RIDGE_STRENGTHS)),
    }


def _most_masked(study: Study, sizes: Sizes) -> int:
    """How many numbers a masked answer may have: as many as it would have without masks."""
    if not adds_under_masks(study):
        return 0
    asked = (query.answer for query in queries_of(study))
    return max(most_bytes(answer, sizes) // WORD.itemsize for answer in asked)
