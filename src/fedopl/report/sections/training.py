"""How it was learned: the training curve, and every exchange."""

from collections.abc import Callable
from dataclasses import dataclass

from fedopl.report.figures.over_steps import curve
from fedopl.report.parts import Part, Picture, Section, Table, Text
from fedopl.report.words.message_names import title_of
from fedopl.report.words.numbers import count, decimal, plural, size
from fedopl.results.record import Record
from fedopl.results.round import Round

_ORACLES = {
    "csoaa-exact": "The policy was solved at once and exactly from the clients' sums: no rounds of "
    "training were needed, and it is the policy that pooled scores would have given.",
    "csoaa-sgd": "The policy was trained in rounds: each client improves it on its own rows, and "
    "the server averages what comes back, weighed by the mixture.",
    "csoaa-vw": "The policy was trained in rounds: each client improves it on its own rows with "
    "Vowpal Wabbit, and the server averages what comes back, weighed by the mixture.",
    "wap": "The policy was solved at once from the clients' sums, for every pair of actions.",
    "direct": "The policy was solved from the clients' sums and then improved step by step along "
    "the slope of its value; the steps were kept only if rows apart confirmed them.",
}
_TREES = {
    "exact": "Clients told sums of scores over the cells of a public grid, all at once. The tree "
    "was searched for in the mixture of these sums, exactly: no rounds of training were needed.",
    "ahead": "Clients told sums of scores over the cells of a public grid, level by level. At "
    "every place in the tree the best two levels were searched for in the mixture of these sums; "
    "the first question stayed, and both answers were looked into on the next level.",
    "observed": "There is one client, and it searched for the tree in its own rows, exactly.",
}
_FINITE = "Nothing was trained: the best of the named candidates was picked on training rows."


def training(record: Record) -> Section:
    """The section."""
    parts = (Text(text=_HOW[record.study.policy.kind](record)), *_curve(record), _exchanges(record))
    return Section(name="learning", title="How it was learned", parts=parts)


def _how_a_tree(record: Record) -> str:
    if record.tree is None:
        return _TREES["observed"]
    return _TREES["exact" if record.tree.is_exact else "ahead"]


# By the kind of policy that the study wants; an oracle without a sentence is named.
_HOW: dict[str, Callable[[Record], str]] = {
    "linear": lambda record: _ORACLES.get(
        record.study.linear.oracle, f"The policy was found by {record.study.linear.oracle}."
    ),
    "tree": _how_a_tree,
    "finite": lambda _: _FINITE,
}


def _curve(record: Record) -> tuple[Part, ...]:
    losses = [latest.loss for latest in record.rounds if latest.loss is not None]
    if len(losses) < 2:
        return ()
    caption = (
        f"Loss after each of {len(losses)} rounds, from {decimal(losses[0])} to "
        f"{decimal(losses[-1])}. Where the curve is flat, more rounds would not help."
    )
    return (
        Picture(name="curve", svg=curve("curve", losses, "loss"), label=caption, caption=caption),
    )


@dataclass(frozen=True, kw_only=True)
class _Stretch:
    """Exchanges of the same kind, one after the other."""

    rounds: list[Round]

    @property
    def cells(self) -> tuple[str, ...]:
        answered = [len(latest.answered) for latest in self.rounds]
        asked = max(len(latest.asked) for latest in self.rounds)
        least, most = min(answered), max(answered)
        who = count(least) if least == most else f"{count(least)} to {count(most)}"
        return (
            title_of(self.rounds[0].query),
            count(len(self.rounds)),
            f"{who} of {count(asked)}",
            size(sum(latest.bytes_sent for latest in self.rounds)),
            size(sum(latest.bytes_received for latest in self.rounds)),
        )


def _exchanges(record: Record) -> Table:
    stretches: list[_Stretch] = []
    for latest in record.rounds:
        if stretches and stretches[-1].rounds[-1].query == latest.query:
            stretches[-1].rounds.append(latest)
        else:
            stretches.append(_Stretch(rounds=[latest]))
    total = sum(latest.bytes_sent + latest.bytes_received for latest in record.rounds)
    return Table(
        caption=f"{plural(len(record.rounds), 'exchange')} with the clients, "
        f"{size(total)} in all, in order",
        headers=("Asked", "Times", "Clients that answered", "Sent", "Received"),
        rows=tuple(stretch.cells for stretch in stretches),
    )
