"""Sums of candidates' scores on training rows, with noise."""

import numpy as np

from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.client.private.tree_sums import contrasts
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_scores import NoisedScores, SumCandidates
from fedopl.policies.kinds import POLICY_FIELDS
from fedopl.privacy.sum_grid import FINE
from fedopl.study.private.added_up import Counting


def sum_candidates(space: PrivateWorkspace, query: SumCandidates) -> NoisedScores:
    """Scores of what each candidate decides, less their mean over candidates, with noise.

    Only differences matter, and scores less their mean are shorter.
    """
    sums = np.zeros(query.n_policies)
    for chunk in space.rows.chunks(RowSplit.TRAINING):
        decided = space.decisions(query, chunk.contexts)
        scores = contrasts(space, chunk, query.models)
        columns = np.column_stack([scores[np.arange(len(scores)), codes] for codes in decided])
        sums += np.trunc((columns - columns.mean(axis=1, keepdims=True)) * FINE).sum(axis=0)
    asked = [getattr(query, field).tobytes() for field in POLICY_FIELDS]
    policies = b"".join(b"%d %s" % (len(one), one) for one in asked)
    about = b"scores %s %s" % (query.models.tobytes(), policies)
    noise = space.noise(about, Counting.TRAINING)
    deviation = space.setting.deviation("scores")
    return NoisedScores(sums=noise.added(sums, deviation, "scores"))
