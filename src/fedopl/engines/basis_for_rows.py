"""Chooses a basis for rows in this process, before any client is asked."""

import math
from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import Limits
from fedopl.client.drafted_basis import MOST_SAMPLED, drafted_basis
from fedopl.client.rows.row_keys import content_order
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.basis import Basis
from fedopl.study.basis_check import MOST_TO_SCREEN
from fedopl.study.private.private_setting import most_terms
from fedopl.study.private.private_units import likely_values
from fedopl.study.study import Study

MOST_ASKED = 100  # clients whose rows are used to choose knots
IN_A_ROW = 100  # neighbouring rows that are read at once for knots


def may_bend(study: Study) -> bool:
    """Whether `basis="auto"` adds terms for non-linear effects.

    With differential privacy, a tree's tables or candidates' scores already show non-linear
    effects. More terms in the outcome models would only add noise.
    """
    return study.can_bend and (study.privacy is None or study.policy.kind == "linear")


def basis_for(
    clients: Mapping[str, LoggedData], kind: str, study: Study, limits: Limits
) -> Basis | None:
    """A basis for these rows; it is written into the study before any client is asked.

    Every client must have enough rows for sums of all terms.
    With differential privacy, the basis depends only on public ranges and sizes, not on the rows.
    """
    if study.privacy:
        likely = likely_values(study.features, study.privacy.ranges)
        learned_from = 1 - study.evaluation.share
        sizes = [round(learned_from * own.n_rows) for own in clients.values()]
        columns = {name: [values] for name, values in likely.items()}
        return drafted_basis(columns, kind, most_terms(study.privacy, sizes))
    most = math.inf
    if math.isfinite(limits.parameter_share):
        fewest = min(data.n_rows for data in clients.values())
        most = fewest * (1 - study.evaluation.share) * limits.parameter_share - 1
    names = sorted(clients)
    some = [_spread(clients[name]) for name in names[:: -(-len(names) // MOST_ASKED)]]
    columns = {
        name: [contexts[:, place] for contexts in some] for place, name in enumerate(study.features)
    }
    plan = study.evaluation
    may_screen = plan.splits == 1 and study.n_features <= MOST_TO_SCREEN and study.target is None
    may_screen &= not study.aggregators
    n_screenings = len(study.left_out) if may_screen else 0
    return drafted_basis(columns, kind, most, n_screenings=n_screenings, seed=study.seed)


def _spread(data: LoggedData) -> FloatArray:  # (at most MOST_SAMPLED rows, n_features)
    """A sample of rows, whatever their order; on disk, blocks of neighbours from all parts."""
    if data.n_rows <= MOST_SAMPLED:
        return data.contexts[:]
    if not data.is_on_disk:
        return data.contexts[content_order(data)[:MOST_SAMPLED]]
    starts = np.linspace(0, data.n_rows - IN_A_ROW, MOST_SAMPLED // IN_A_ROW).astype(int)
    return np.concatenate([data.contexts[start : start + IN_A_ROW] for start in starts.tolist()])
