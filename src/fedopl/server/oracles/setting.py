"""What an oracle starts from."""

from dataclasses import dataclass

from fedopl.mixture import Weights
from fedopl.server.statistics import Statistics
from fedopl.study import Study


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """The study, the mixture over the clients that take part, and their sums."""

    study: Study
    weights: Weights
    statistics: Statistics
