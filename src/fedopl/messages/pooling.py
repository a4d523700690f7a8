"""How the answers of several clients become one, as of a single client with all their rows.

An aggregator answers a server with them. Every answer has a rule here, is added up or averaged as
its fields declare (`combining`), or stands in `NOT_POOLED` with the reason.

Weights are the members' shares of what clients count by. So a mixture over aggregators in which one
has λ is, to every rule here, the mixture over its members in which each has λ times its share.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.about_differences import ClassifierSums, Models, ModelShifts, ScoreMoments
from fedopl.messages.about_target import BalanceSums, ContextMoments, TransportedValues
from fedopl.messages.combining import PerClient, combinations_of, combined
from fedopl.messages.evaluation.description import Description
from fedopl.messages.evaluation.interactions_left import InteractionsLeft
from fedopl.messages.evaluation.model_fit import ModelFit
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.messages.learning.enrolment import Enrolment
from fedopl.messages.learning.outcome_sums import TotalWeight
from fedopl.messages.learning.policy_steps import TrainedNetwork
from fedopl.messages.learning.score_sums import ContrastSquares, ScoreSums, ScoreSumsByFold
from fedopl.messages.learning.term_screening import FoundTaken, JumpStatistics, ProductStatistics
from fedopl.messages.message import AnswerType, Message, own_fields
from fedopl.messages.trees.cell_sums import CellSums, fewest_numbers
from fedopl.messages.trees.threshold_gains import ThresholdGains
from fedopl.messages.vocabulary import QUERIES, queries_of
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT
from fedopl.study.study import Study

PoolingRule = Callable[[Sequence[Any], FloatArray, Study], Message]


def _totals(answers: Sequence[Message], _shares: FloatArray, _study: Study) -> Message:
    """Every field adds up; so do effective rows, since every client weighs its own rows."""
    kind = type(answers[0])
    by_field = {name: [getattr(one, name) for one in answers] for name in own_fields(kind)}
    totals: dict[str, Any] = {
        name: _added(own) if isinstance(own[0], np.ndarray) else sum(own)
        for name, own in by_field.items()
    }
    return kind(**totals)


def _score_sums(answers: Sequence[ScoreSums], shares: FloatArray, _study: Study) -> ScoreSums:
    return pooled_scores(answers, shares)


def pooled_scores(answers: Sequence[ScoreSums], weights: FloatArray) -> ScoreSums:
    """Means over all rows with a score; an answer counts by weight and share of such rows."""
    n_grams = max(len(one.grams) for one in answers)
    scored = [weight * one.shares for weight, one in zip(weights, answers, strict=True)]
    shares = _added(scored)
    safe = np.where(shares > 0, shares, 1.0)
    own = [part / safe for part in scored]
    pairs = list(zip(own, answers, strict=True))
    return ScoreSums(
        grams=_added([part[:n_grams, None, None] * one.grams for part, one in pairs]),
        products=_added([part[:, None] * one.products for part, one in pairs]),
        squares=_added([part * one.squares for part, one in pairs]),
        shares=shares,
    )


def _by_fold(
    answers: Sequence[ScoreSumsByFold], shares: FloatArray, _study: Study
) -> ScoreSumsByFold:
    in_fold = [share * one.weights for share, one in zip(shares, answers, strict=True)]
    weights = _added(in_fold)
    folds = []
    for fold, weight in enumerate(weights):
        own = np.array([part[fold] for part in in_fold]) / (weight if weight > 0 else 1.0)
        folds.append(pooled_scores([one.of_fold(fold) for one in answers], own))
    stacked: dict[str, Any] = {
        name: np.stack([getattr(one, name) for one in folds]) for name in own_fields(ScoreSums)
    }
    return ScoreSumsByFold(weights=weights, **stacked)


def _cells(answers: Sequence[CellSums], shares: FloatArray, study: Study) -> CellSums:
    """Rows add up; shares and scores are means; doubts are of squared weights."""
    widest = max(one.cells.shape[-1] for one in answers)
    weights = np.tile(shares[:, None], widest)  # (n_answers, n_numbers)
    weights[:, ROWS] = 1.0
    if study.doubts_leaves:
        weights[:, -study.n_actions :] = (shares**2)[:, None]
    wide = [_with_scored_shares(one.cells, widest, study) for one in answers]
    return CellSums(
        cells=_added([own * part for own, part in zip(weights, wide, strict=True)]),
    )


def _with_scored_shares(cells: FloatArray, widest: int, study: Study) -> FloatArray:
    """The cells, also with shares of rows that have a score, which may be all of them."""
    if cells.shape[-1] == widest:
        return cells
    scores, doubts = np.split(cells, [FIRST_ACTION + study.n_actions], axis=-1)
    scored = np.repeat(cells[..., [WEIGHT]], widest - fewest_numbers(study), axis=-1)
    return np.concatenate([scores, scored, doubts], axis=-1)


def _gains(answers: Sequence[ThresholdGains], shares: FloatArray, _study: Study) -> ThresholdGains:
    pairs = zip(shares, answers, strict=True)
    return ThresholdGains(gains=_added([share * one.gains for share, one in pairs]))


def _values(answers: Sequence[ValuesByPart], shares: FloatArray, _study: Study) -> ValuesByPart:
    """Σ s·q with covariances Σ s²·v, as in the mixture; degrees of freedom as for their trace.

    Members count in a leaf by their share of rows there, as clients do in a mixture.
    """
    inside = np.stack([s * one.likely_shares() for s, one in zip(shares, answers, strict=True)])
    told = np.stack([one.n_rows > 0 for one in answers])
    weights = told * inside[:, :, None]  # (n_answers, n_leaves, n_parts)
    weights = weights / np.where(told.any(axis=0), weights.sum(axis=0), 1.0)
    squared = weights[..., None, None] ** 2 * [one.covariances for one in answers]
    variances = np.trace(squared, axis1=-2, axis2=-1)
    degrees = np.stack([one.degrees_of_freedom for one in answers])
    freedom = np.zeros(told.shape[1:])
    for leaf, part in np.argwhere(told.any(axis=0)):
        telling = told[:, leaf, part]
        freedom[leaf, part] = _freedom(variances[telling, leaf, part], degrees[telling, leaf, part])
    return ValuesByPart(
        of_rows=_added([one.of_rows for one in answers]),
        shares=inside.sum(axis=0),
        n_rows=_added([one.n_rows for one in answers]),
        degrees_of_freedom=freedom,
        means=_added([w[..., None] * one.means for w, one in zip(weights, answers, strict=True)]),
        covariances=_added([*squared]),
    )


def _freedom(variances: FloatArray, degrees: FloatArray) -> int:
    """Welch & Satterthwaite's degrees of freedom, rounded down; 0 if any part has none."""
    if degrees.min() < 1:
        return 0
    spread = float((variances**2 / degrees).sum())
    if spread <= 0:
        return int(degrees.sum())
    return int(min(float(variances.sum()) ** 2 / spread * (1 + 1e-9), degrees.sum()))


def _added(arrays: Sequence[FloatArray]) -> FloatArray:
    """The sum, one after the other: float sums depend on order."""
    total: FloatArray = 0.0 + arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


# Of answers with fields that have no total.
POOLED: dict[type[Message], PoolingRule] = {
    Enrolment: _totals,
    TotalWeight: _totals,
    ScoreSums: _score_sums,
    ScoreSumsByFold: _by_fold,
    CellSums: _cells,
    ThresholdGains: _gains,
    ValuesByPart: _values,
    Description: _totals,
}
_OF_ONE = "it says by what one client differs from the others"
_SCREENED = "what each client's rows say of pairs and jumps is counted by client"
_PERSONAL = "a personal policy is of one client"
_TARGET = "a site without outcomes is compared with single clients"
# By answer, why several cannot become one; and the setting with which a study does without.
NOT_POOLED: dict[type[Message], tuple[str, str]] = {
    Models: (_OF_ONE, "diagnose = false under [joining]"),
    ModelShifts: (_OF_ONE, "diagnose = false under [joining]"),
    ClassifierSums: (_OF_ONE, "diagnose = false under [joining]"),
    ScoreMoments: (_OF_ONE, "diagnose = false under [joining]"),
    ModelFit: (_OF_ONE, "describe = false under [evaluation]"),
    InteractionsLeft: (_OF_ONE, "describe = false under [evaluation]"),
    ProductStatistics: (_SCREENED, "screened_pairs = 0 under [basis]"),
    JumpStatistics: (_SCREENED, "screened_thresholds = 0 under [basis]"),
    FoundTaken: (_SCREENED, "screened_pairs = 0 under [basis]"),
    ContrastSquares: (_PERSONAL, 'kind = "none" under [personal]'),
    TrainedNetwork: (
        "when to stop is decided from each client's own loss",
        'another kind than "neural" under [policy]',
    ),
    BalanceSums: (_TARGET, "no [target]"),
    ContextMoments: (_TARGET, "no [target]"),
    TransportedValues: (_TARGET, "no [target]"),
}
PRIVATE = (
    "noise is promised for sums that one party reads, and masks cancel among all clients that the "
    "study names; an aggregator in between would read sums that neither covers"
)


def pooled_answer(
    answers: Mapping[str, AnswerType], weights: Mapping[str, float], study: Study
) -> AnswerType:
    """One answer in place of these, by name; weights are what these clients count by."""
    names = sorted(answers)
    if len(names) == 1:
        return answers[names[0]]
    kind = type(answers[names[0]])
    counted = np.array([weights[name] for name in names])
    shares = counted / counted.sum()
    if kind in POOLED:
        total = POOLED[kind]([answers[name] for name in names], shares, study)
        return cast(AnswerType, total)
    return combined(answers, dict(zip(names, shares.tolist(), strict=True)))


def is_pooled(answer: type[Message]) -> bool:
    """Whether several of these answers can become one."""
    return answer in POOLED or PerClient not in combinations_of(answer).values()


def why_not_pooled(study: Study) -> str | None:
    """Why a study cannot be run through aggregators, and what to change; None if it can."""
    if study.privacy:
        return f"[privacy]: {PRIVATE}"
    asked = queries_of(study)
    for query in QUERIES:
        if query in asked and not is_pooled(query.answer):
            why, instead = NOT_POOLED[query.answer]
            return f"{query.__name__} cannot be asked of an aggregator: {why}; set {instead}"
    return None
