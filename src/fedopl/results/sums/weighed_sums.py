"""Clients' weights and a policy's terms, from the sums of the clients that take part."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedopl.base.errors import FederationError
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.results.sums.robust_weights import weights_for
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import choose_terms
from fedopl.study.mixture import Counted, Weights


def weighed(
    statistics: ScoreStatistics, counted: Counted, by_fold: Mapping[str, ScoreSumsByFold]
) -> tuple[Weights, ScoreStatistics]:
    """The weights by the study's mixture, and the sums with the terms chosen by them."""
    study = statistics.study
    weights = weights_for(study.mixture, statistics, counted)
    if study.chooses_terms:
        by_noise = statistics.noise_weights(weights)
        choice = choose_terms(study, by_fold, weights, by_noise=by_noise)
        statistics = replace(statistics, choice=choice)
    if np.isnan(statistics.arm_values(weights)).all():
        raise FederationError("no client has a score for any action")
    return weights, statistics
