"""Names of policies, units and directions of outcomes, in words."""

from dataclasses import dataclass

from fedopl.base.labels import GLOBAL
from fedopl.policies.neural import NeuralPolicy
from fedopl.report.words.numbers import Span, decimal
from fedopl.report.words.permission_words import arm_given, arm_label
from fedopl.results.record import Record
from fedopl.results.value_tables import (
    BEST_ARM,
    BEST_CANDIDATE,
    LEARNED,
    LOCAL,
    LOGGING,
    PERSONAL,
    arm_name,
)
from fedopl.study.private.added_up import adds_under_masks
from fedopl.study.spending import net_words
from fedopl.study.study import Study

SO_FAR = "what was done so far"
_OWN = "each client's own policy"


@dataclass(frozen=True, kw_only=True)
class OutcomeWords:
    """The name of the outcome, and whether less of it is better.

    Values are in logged units. Gains are positive if the policy is better.
    """

    name: str
    lower_is_better: bool

    @classmethod
    def of(cls, study: Study) -> "OutcomeWords":
        """The outcome column of the study, or just 'reward'; with costs, if they are part of it."""
        name = study.table.reward if study.table else "reward"
        name = " ".join(filter(None, (name, net_words(study))))
        return cls(name=name, lower_is_better=study.reward_sign < 0)

    @property
    def better(self) -> str:
        """Which direction is better, in words."""
        return f"{'lower' if self.lower_is_better else 'higher'} is better"

    def change(self, gain: Span) -> str:
        """The effect of a gain or a loss per decision, after 'expected to'."""
        amount = decimal(abs(gain.value)) if not gain.is_known else gain.number.lstrip("−")
        if self.lower_is_better:
            verb = "lower" if gain.value >= 0 else "raise"
            return f"{verb} {self.name} by {amount} per decision"
        return f"{'gain' if gain.value >= 0 else 'lose'} {amount} {self.name} per decision"


def verdict(gain: Span) -> str:
    """'better', 'worse', 'same' where two policies never differ, or 'unclear'."""
    if gain.is_nothing:
        return "same"
    if gain.low > 0:
        return "better"
    return "worse" if gain.high < 0 else "unclear"


def is_arm(study: Study, name: str) -> bool:
    """Whether `name` is that of a constant arm."""
    return name in {arm_name(action) for action in study.actions}


def label(study: Study, name: str) -> str:
    """The label of a policy on the page."""
    own = f"{_OWN}, without the budget" if study.budget else _OWN
    known = {LEARNED: "the learned policy", LOGGING: SO_FAR, LOCAL: own}
    known[PERSONAL] = "each client's personal policy"
    known[BEST_ARM] = "the best single action, chosen fold by fold"
    known[BEST_CANDIDATE] = "the best candidate of the other folds"
    known |= {arm_name(action): arm_label(study, action) for action in study.actions}
    return known.get(name, f"'{name}'")


def best_single(record: Record) -> str:
    """The best arm, as the learned policy is compared with it."""
    if record.valued_arm == BEST_ARM:
        return label(record.study, BEST_ARM)
    return arm_given(record.study, record.best_arm)


def has_network(record: Record) -> bool:
    """Whether the learned policy is more than the linear policies that clients learn alone."""
    return isinstance(record.policy, NeuralPolicy) and not record.policy.is_linear


def opened(text: str) -> str:
    """The text with a capital first letter, to begin a sentence."""
    return text[:1].upper() + text[1:]


def gain_over(record: Record, against: str, client: str = GLOBAL) -> Span | None:
    """The gain of the learned policy over another; None if not reported."""
    row = record.gains.by_cell().get((against, client))
    return Span.of(row.estimate) if row else None


def value_of(record: Record, policy: str, client: str = GLOBAL) -> Span | None:
    """The value of a policy in the outcome's own units; None if not reported."""
    row = record.values.by_cell().get((policy, client))
    return Span.of(row.estimate, row.level) if row else None


def only_together(record: Record) -> bool:
    """Whether values are of all clients together alone, as there are very many of them.

    Under masks they are, too, for another reason.
    """
    is_unnamed = bool(record.gains.rows) and not valued_clients(record)
    return is_unnamed and not adds_under_masks(record.study)


def valued_clients(record: Record) -> list[str]:
    """The clients that reported values of what was learned, sorted."""
    names = {row.client for row in record.gains.rows} - {GLOBAL}
    return sorted(names)
