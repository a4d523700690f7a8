"""The closed table of oracles for linear policies, by the name that a study gives them."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.oracles import direct, exact, sgd, wap
from fedopl.study.study import Study

Learned_co = TypeVar("Learned_co", bound=Policy, covariant=True)


class Oracle(Protocol[Learned_co]):
    """Finds a policy for the setting's mixture; what the sums do not say, it asks clients for."""

    def __call__(self, setting: Setting, conversation: Conversation, /) -> Learned_co:
        """The policy."""


class LinearOracle(NamedTuple):
    """An oracle, and how many exchanges with clients it takes at most."""

    learn: Oracle[LinearPolicy]
    exchanges: Callable[[Study], int] = lambda _study: 0


ORACLES = {
    "csoaa-exact": LinearOracle(exact.learn),
    "csoaa-sgd": LinearOracle(sgd.learn, sgd.exchanges),
    "csoaa-vw": LinearOracle(sgd.learn, sgd.exchanges),  # only the clients' steps differ
    "wap": LinearOracle(wap.learn, wap.exchanges),
    "direct": LinearOracle(direct.learn, direct.exchanges),
}
