"""The local policy: what one client would learn from its own rows alone; it is never released."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.estimates import Estimate
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.local.local_steps import movable
from fedopl.client.local.local_training import Batches, LocalTraining, ScoredStudyRows
from fedopl.client.local.local_tree import best_local_tree
from fedopl.client.local.obeyed_scores import ObeyedScores
from fedopl.client.local.score_means import ScoreTotals, means_of, pair_means, value_slope
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.values import JointSums
from fedopl.messages.learning.score_sums import ScoreSums, ScoreSumsByFold
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import as_array
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import Paths, TermChoice, choose_terms
from fedopl.solvers.averaged_rounds import AveragedRounds, climb, surely_rises
from fedopl.solvers.linear_solvers import never_taken, solve_pairs
from fedopl.study.study import Study

# Chunks with their scores; called once for every pass.
ScoredChunks = Callable[[], Iterable[ScoredChunk]]
ALONE = {"own": 1.0}  # a federation of one


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalTask:
    """A client's own scores, and how the study learns a policy from scores."""

    rows: StudyRows
    study: Study
    parts: ScoredChunks
    blocks: list[IntArray] | None  # each action's own columns, where the policy has them
    draws: PrivateDraws

    @cached_property
    def statistics(self) -> ScoreStatistics:
        """The sums that a server would have of this client, and the terms that they support."""
        choice: TermChoice | None = None
        if self.study.chooses_terms:
            by_fold = sums_by_fold(self.chunks, self.rows, self.blocks)
            sums = by_fold.of_folds(range(len(by_fold.weights)))
            choice = choose_terms(self.study, {"own": by_fold}, ALONE)
        else:
            means = means_of(self.chunks, self.rows, self.blocks, complete=True)
            sums = ScoreSums(**vars(means))
        return ScoreStatistics(study=self.study, sums={"own": sums}, rows=ALONE, choice=choice)

    def chunks(self) -> Iterable[ScoredChunk]:
        """The same chunks; those in memory are scored once."""
        return self.parts() if self.rows.given.is_on_disk else iter(self._in_memory)

    @cached_property
    def _in_memory(self) -> list[ScoredChunk]:
        return list(self.parts())

    @property
    def scored(self) -> ScoredStudyRows:
        """The rows with their scores, for local steps."""
        return ScoredStudyRows(self.rows.given, self.chunks, self)


def learn_local_policy(task: LocalTask) -> FloatArray:  # the numbers of a policy of the local kind
    """Learn as the study does, by its oracle or search, from scores that use nobody else's rows."""
    study = task.study
    if study.policy.local_kind == TreePolicy.kind:
        if task.rows.given.is_on_disk and study.tree.thresholds == "observed":
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        obeyed = ObeyedScores(study, task.draws.client)
        found = task.rows.kept(partial(obeyed.to_sum, task.parts))  # used for every level
        return as_array(best_local_tree(found, study.tree, study.columns, study.actions))
    # A new oracle needs an entry for a single client here. Until then, the exact one is used.
    return _ORACLES.get(study.linear.oracle, _exact)(task)


def _exact(task: LocalTask) -> FloatArray:  # (n_actions, n_features + 1)
    return task.statistics.solve(ALONE).parameters


def _rounds(task: LocalTask) -> FloatArray:  # (n_actions, n_features + 1)
    """Algorithm 1 with one client, which takes the same steps as in the federation."""
    study, plan, statistics = task.study, task.study.linear.training, task.statistics
    centre, scale = statistics.standardisation(ALONE)
    training = LocalTraining(study, Batches(task.draws))
    rows = training.examples(task.scored, centre, scale)
    mask = movable(task.blocks, study.n_features)
    shape = (study.n_actions, study.n_features + 1)
    rounds = AveragedRounds(shape, plan.rounds, plan.momentum, plan.average)
    for turn in range(plan.rounds):
        rounds.move_to(training.improved(rounds.parameters, rows, turn, mask))
    learned = rounds.best(centre, scale, statistics.loss(ALONE))
    return never_taken(learned, statistics.unknown(ALONE))


def _pairs(task: LocalTask) -> FloatArray:  # (n_pairs, n_features + 1)
    given = task.rows.given
    grams, products = pair_means(task.chunks(), given.n_actions, given.n_features)
    return solve_pairs(grams, products, task.statistics.unknown(ALONE))


def _direct(task: LocalTask) -> FloatArray:  # (n_actions, n_features + 1)
    """Climb on all folds but the first; accept if the value on the first one rises."""
    start, mask = _exact(task), movable(task.blocks, task.study.n_features)
    obeyed = ObeyedScores(task.study, task.draws.client)

    def slope_at(parameters: FloatArray, temperature: float) -> FloatArray:
        slope = value_slope(obeyed.allowed_in(task.chunks()), parameters, temperature)
        return slope if mask is None else slope * mask

    climbed = climb(start, *task.statistics.standardisation(ALONE), slope_at)
    return climbed if surely_rises(_gain(task, start, climbed)) else start


def _gain(task: LocalTask, start: FloatArray, climbed: FloatArray) -> Estimate:
    """The gain of the climb on the rows of the first fold."""
    both = [LinearPolicy.from_numbers(numbers, task.study) for numbers in (start, climbed)]
    policies = [one.at(task.draws.client) for one in both]
    sums = JointSums()
    for chunk in task.chunks():
        rows = chunk.rows(RowSplit.VALIDATION)
        contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
        before, after = (scores[np.arange(len(scores)), one.decide(contexts)] for one in policies)
        sums.add((after - before)[:, None], chunk.weights(rows), chunk.data.groups_of(rows))
    found = sums.estimate()
    if found is None:
        return Estimate(value=0.0, standard_error=0.0, n_rows=0, degrees_of_freedom=0)
    n_rows, _, gain, variance = found.first_column
    return Estimate(
        value=gain,
        standard_error=float(np.sqrt(variance)),
        n_rows=int(n_rows),
        degrees_of_freedom=found.degrees_of_freedom,
    )


_ORACLES: dict[str, Callable[[LocalTask], FloatArray]] = {
    "csoaa-exact": _exact,
    "csoaa-sgd": _rounds,
    "csoaa-vw": _rounds,  # only the steps differ
    "wap": _pairs,
    "direct": _direct,
}


# --- without each fold ----------------------------------------------------------------------------


def means_by_fold(
    chunks: Iterable[ScoredChunk],
    rows: StudyRows,
    columns: list[IntArray] | None,
    *,
    complete: bool,
) -> ScoreSumsByFold:
    """Means over each fold of these chunks, whose contexts are terms.

    They are `complete` if all training rows have all scores. Then one Gram matrix serves all
    actions, and it is not summed again.
    """
    known = rows.squares_by_fold if complete and columns is None else None
    folds = range(rows.folds_as_given.n_folds)
    totals = [
        ScoreTotals(rows.given.n_actions, rows.n_terms, columns, complete=complete) for _ in folds
    ]
    weights = np.zeros(len(folds))
    for chunk in chunks:
        for fold, own in enumerate(chunk.fold_slices):
            add = totals[fold].add if known is None else totals[fold].add_without_squares
            add(chunk.data, chunk.scores, own)
            weights[fold] += chunk.data.weights_of(own).sum()
    if known is not None:
        for own, total in zip(known, totals, strict=True):
            total.add_squares(own)
    means = [vars(own.means()) for own in totals]
    by_fold: dict[str, Any] = {name: np.stack([one[name] for one in means]) for name in means[0]}
    return ScoreSumsByFold(weights=weights / weights.sum(), **by_fold)


def sums_by_fold(
    own: ScoredChunks, rows: StudyRows, columns: list[IntArray] | None
) -> ScoreSumsByFold:
    """Means over each fold of these chunks, from their terms."""
    complete = all(np.isfinite(chunk.scores[chunk.training]).all() for chunk in own())
    in_terms = (
        part.with_scores(chunk.scores[which])
        for chunk in own()
        for which, part in rows.into_terms(chunk)
    )
    return means_by_fold(in_terms, rows, columns, complete=complete)


def local_policies_by_fold(
    own: ScoredChunks,
    rows: StudyRows,
    study: Study,
    columns: list[IntArray] | None,
    obeyed: ObeyedScores,
) -> Sequence[Policy]:
    """What the client would learn alone without each fold, from scores that use only its rows."""
    if study.policy.local_kind == TreePolicy.kind:
        found = rows.kept(own)  # used for every fold and level
        trees = [
            best_local_tree(
                partial(obeyed.to_sum, found, fold), study.tree, study.columns, study.actions
            )
            for fold in range(rows.folds_as_given.n_folds)
        ]
        return [TreePolicy.of(root, study) for root in trees]
    sums = sums_by_fold(own, rows, columns)
    n_folds = len(sums.weights)
    policies, paths = [], Paths()
    for fold in range(n_folds):
        others = [other for other in range(n_folds) if other != fold]
        statistics = ScoreStatistics(
            study=study,
            sums={"own": sums.of_folds(others)},
            rows=ALONE,  # the number of rows does not matter with a single client
            screening=fold,
            choice=choose_terms(study, {"own": sums}, ALONE, others, screening=fold, paths=paths),
        )
        policies.append(statistics.solve(ALONE))
    return policies
