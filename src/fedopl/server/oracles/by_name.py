"""All oracles for linear policies, by their names in a study."""

from collections.abc import Callable
from typing import NamedTuple

from fedopl.policies.linear import LinearPolicy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.oracles import direct, exact, sgd, wap
from fedopl.study.study import Study


class LinearOracle(NamedTuple):
    """Finds a policy for the setting's mixture; it asks clients for what the sums do not tell."""

    learn: Callable[[Setting, Conversation], LinearPolicy]
    # The largest number of exchanges with clients that learning takes.
    exchanges: Callable[[Study], int] = lambda _study: 0


ORACLES = {
    "csoaa-exact": LinearOracle(exact.learn),
    "csoaa-sgd": LinearOracle(sgd.learn, sgd.exchanges),
    "csoaa-vw": LinearOracle(sgd.learn, sgd.exchanges),  # only the clients' steps differ
    "wap": LinearOracle(wap.learn, lambda _study: 1),
    "direct": LinearOracle(direct.learn, direct.exchanges),
}
