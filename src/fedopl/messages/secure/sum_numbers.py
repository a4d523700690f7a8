"""Numbers of a study's masked sums: if clients may be missing, each sum has its own seeds."""

from typing import Any

from fedopl.messages.message import Query
from fedopl.messages.private.noised_cells import SumCellsPrivately
from fedopl.messages.private.noised_gains import LookPrivately
from fedopl.messages.private.noised_moments import MeasureNumbers
from fedopl.messages.private.noised_scores import SumCandidates
from fedopl.messages.private.noised_sums import SumPrivately
from fedopl.messages.private.noised_values import ValuePrivately
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.secure.double_masks import Circle
from fedopl.secure.neighbours import Holding, holders_by_place, holding_of
from fedopl.study.private.added_up import Counting, most_lacking, parties_of
from fedopl.study.study import Study

# In the order in which their secrets are numbered.
SUMMED: tuple[type[Query[Any]], ...] = (
    MeasureNumbers,
    SumPrivately,
    SumResiduals,
    SumCellsPrivately,
    LookPrivately,
    SumCandidates,
    ValuePrivately,
)


def n_sums(study: Study) -> int:
    """How many sums this study can ask for."""
    return sum(_times(query, study) for query in SUMMED)


def _times(query: type[Query[Any]], study: Study) -> int:
    # As agreed: measured ranges do not change the number of sums.
    agreed = study.before_screening
    return (query.most(agreed) or 0) if query.needed(agreed) else 0


def number_of(query: Query[Any], study: Study) -> int:
    """The number of the sum that this query asks for."""
    before = SUMMED[: SUMMED.index(type(query))]
    own = query.number if isinstance(query, SumResiduals) else 0
    return sum(_times(one, study) for one in before) + own


def counting_of(query: Query[Any]) -> Counting:
    """How much rows of different clients count in the sum that this query asks for."""
    if isinstance(query, SumPrivately | MeasureNumbers):
        return Counting.ALIKE
    return Counting.HELD_OUT if isinstance(query, ValuePrivately) else Counting.TRAINING


def n_shared_sums(study: Study) -> int:
    """The number of sums with shared secrets: all, if clients may be missing."""
    return n_sums(study) if most_lacking(study) else 0


def holding_in(study: Study) -> Holding:
    """The number of others that a client has masks and shares with in this study."""
    lacking = most_lacking(study)
    colluders = study.privacy.colluders if study.privacy else 0
    return holding_of(len(parties_of(study)), colluders, lacking)


def circle_in(study: Study, about: bytes) -> Circle:
    """The holders of all shares in this study, with the roster behind `about`."""
    holding = holding_in(study)
    holders = holders_by_place(len(parties_of(study)), holding.n_neighbours, about)
    return Circle(holders, holding.threshold)
