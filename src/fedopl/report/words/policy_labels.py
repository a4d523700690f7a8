"""Names of policies, clients, units and directions of outcomes, in words, and who may get what."""

from dataclasses import dataclass

from fedopl.base.labels import GLOBAL
from fedopl.policies.allowed.permissions import Permissions
from fedopl.policies.neural import NeuralPolicy
from fedopl.report.words.numbers import Span, decimal, listed
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


def permission_sentences(permissions: Permissions, kind: str) -> list[str]:
    """One sentence for each rule, and the action given instead of a forbidden one."""
    found = []
    for rule in permissions.never:
        who = f"Where {rule.when}, nobody gets" if rule.when else "Nobody gets"
        found.append(f"{who} '{rule.action}'.")
    for client, actions in permissions.only.items():
        given = listed([f"'{action}'" for action in actions], joint="or")
        found.append(f"At {client} only {given} can be given.")
    if permissions.only:
        found.append("Examples and pictures of decisions are of a client that can give everything.")
    if any(rule.when for rule in permissions.never):
        found.append("Where a value is missing that a rule asks about, the rule holds.")
    if kind in ("linear", "pairwise", "neural"):
        found.append("The policy takes the largest score of what may be given.")
    else:
        found.append(
            "Where the policy decides on what may not be given, the first action that may, in the "
            "order of the study, is given in its place."
        )
    return found


def arm_sentences(study: Study) -> list[str]:
    """What a constant arm means if not everybody may get its action; empty if all may."""
    limited = _limited(study)
    if not limited:
        return []
    arms = listed([f"'{action}'" for action in limited], joint="or")
    return [
        f"No policy gives {arms} to everybody: to value it as a single action, all who may get it "
        "get it, and all others the first action that they may get, in the order of the study."
    ]


def arm_label(study: Study, action: str) -> str:
    """The name of a constant arm on the page."""
    if action in _limited(study):
        return f"all who may get '{action}' get it"
    return f"everybody gets '{action}'"


def arm_given(study: Study, action: str, verb: str = "giving") -> str:
    """Giving an action to everybody, or to all who may get it."""
    if action in _limited(study):
        return f"{verb} '{action}' to all who may get it"
    return f"{verb} everybody '{action}'"


def best_on_training(study: Study) -> str:
    """How the best arm did on the training rows, in words."""
    limited = _limited(study)
    if not limited:
        return "which was best on the rows learned from"
    if len(limited) == len(study.actions):
        return "which was best on the rows learned from, as if everybody could get it"
    return "which was best, of what everybody may get, on the rows learned from"


def _limited(study: Study) -> tuple[str, ...]:
    """The actions that not everybody may get."""
    return study.permissions.limited(study.actions) if study.permissions else ()


def regions(record: Record) -> list[str]:
    """The aggregators that speak to the server, sorted."""
    return sorted(set(record.study.aggregators) & set(record.mixture))


def who_adds_up(record: Record) -> str:
    """Who adds up whose answers, as a sentence; empty if nobody does."""
    names = regions(record)
    are = "is an aggregator: it" if len(names) == 1 else "are aggregators: each"
    said = f"{listed(names)} {are} adds up its members' answers and counts as one client."
    return said if names else ""


def of_regions(record: Record, what: str) -> str:
    """A sentence about regions, such as SUPPORT_OF_MEMBERS; empty without any."""
    names = regions(record)
    return what.format(listed(names)) if names else ""


# Of what regions report: sums over members, own policies, and what left them.
SUPPORT_OF_MEMBERS, OWN_OF_MEMBERS, SENT_FOR_MEMBERS = (
    "Of {}, this is the support in all members together: at one of them, an action may have none.",
    "For {}, this is what each member would learn alone, and its value is the mean over members.",
    "Of {}, the numbers below are those of what it sent on, one answer for all its members. It has "
    "read each member's own answers; what left a member is in that member's ledger.",
)


def one_client_alone(record: Record) -> str:
    """What a run with a single client cannot say about joining."""
    if names := regions(record):
        return (
            f"There is only one client, {names[0]}, and it adds up its members' answers. What "
            "joining brings a member is known to nobody above it."
        )
    return "There is only one client, so there are no others to join."


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
