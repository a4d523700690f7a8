"""How the policy was learned: the training curve, and every exchange."""

from itertools import groupby

import numpy as np

from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.policies.neural import NeuralPolicy
from fedopl.report.explain.learning_words import caution_words, weights_by_noise
from fedopl.report.figures.line_charts import curve
from fedopl.report.parts import Part, Picture, Section, Table, Text
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
    "the slope of its value; the steps were kept only if separate rows confirmed them.",
}
_PICKED = "Nothing was trained: the best of the named candidates was chosen on training rows."
_PRIVATELY = (
    "Models of every action's outcome were solved from the clients' sums, which came with "
    "noise. They were then improved in steps by their residuals, again from sums with noise. "
    "The policy takes the action with the highest predicted outcome."
)
_OTHERS_PRIVATELY = {
    "finite": "Nothing was trained: the candidate with the largest sum of scores on training rows "
    "was chosen, by sums with noise.",
    "tree": "Models of every action's outcome were solved from the clients' sums, which came "
    "with noise. With them clients scored their rows, and reported sums, with noise, over the "
    "cells of a coarse grid computed from public ranges. The tree was searched for in the "
    "mixture of these. Then they reported sums close to its thresholds, with noise, and the "
    "thresholds moved to where the mixture gains most.",
}
_NETWORK = (
    "The exact linear policy was solved from the clients' sums. A network beside it was trained "
    "in rounds on the part of the scores that this policy does not explain: each client takes "
    "steps on its own rows, and the server averages what comes back, weighed by the mixture."
)
_KEPT = {
    True: "The network of the round with the least loss on rows kept back was kept.",
    False: "In no round did a network beat the linear policy by more than a standard error on rows "
    "kept back, so the linear policy was kept as it is.",
}
_WEIGHED = (
    "The policy was solved at once from the clients' sums: no rounds of training were needed. "
    "How much each client counts also depends on the noise of its scores."
)
_TREES = {
    "exact": "Clients reported sums of scores over the cells of a public grid, all at once. The "
    "tree was searched for in the mixture of these sums, exactly: no rounds of training were "
    "needed.",
    "refined": "Clients reported sums of scores over the cells of a public grid, all at once. "
    "The tree was searched for in the mixture of these sums, exactly. Then they reported sums "
    "close to its thresholds, and the thresholds moved to where the mixture gains most.",
    "ahead": "Clients reported sums of scores over the cells of a public grid, level by level. "
    "At every place in the tree the best two levels were searched for in the mixture of these "
    "sums; the first question was kept, and the search continued in both branches on the next "
    "level.",
    "observed": "There is one client. It searched for the tree in its own rows, exactly.",
}


def training(record: Record) -> Section:
    """The section."""
    parts = (Text(_how(record)), *_curve(record), _exchanges(record))
    return Section(name="learning", title="How it was learned", parts=parts)


def _how(record: Record) -> str:
    """A sentence by the study's kind of policy; an oracle without a sentence is named."""
    kind = record.study.policy.kind
    if record.study.privacy:
        return _OTHERS_PRIVATELY.get(kind, _PRIVATELY)
    if kind == "finite":
        return f"{_PICKED} {caution_words(None, record)}".strip()
    if kind == "neural":
        return f"{_NETWORK} {_KEPT[_kept_round(record) is not None]}"
    if kind == "linear":
        oracle = record.study.linear.oracle
        weighed = record.study.linear.precision == "clients" or weights_by_noise(record)
        if oracle == "csoaa-exact" and weighed:
            return _WEIGHED
        return _ORACLES.get(oracle, f"The policy was found by {oracle}.")
    if record.tree is None:
        return _TREES["observed"]
    found = "refined" if record.second_look else "exact"
    return _TREES[found if record.tree.is_exact else "ahead"]


def _kept_round(record: Record) -> int | None:
    """The round whose network was kept, counted from one; None if the linear policy was kept."""
    policy = record.policy
    if not isinstance(policy, NeuralPolicy) or policy.is_linear:
        return None
    losses = [latest.loss for latest in record.own_rounds if latest.loss is not None]
    return 2 + int(np.argmin(losses[1:]))  # the first network says nothing yet


def _curve(record: Record) -> tuple[Part, ...]:
    losses = [latest.loss for latest in record.own_rounds if latest.loss is not None]
    if len(losses) < 2:
        return ()
    caption = (
        f"Loss after each of {len(losses)} rounds, from {decimal(losses[0])} to "
        f"{decimal(losses[-1])}. Where the curve is flat, more rounds would not help."
    )
    if record.study.hidden:
        kept = _kept_round(record)
        caption = (
            f"Loss of the network on rows kept back, before each of {len(losses)} rounds, less "
            "that of the linear policy alone: below 0 the network helps."
            + (
                ""
                if kept is None
                else f" The network at the start of round {count(kept)} was kept."
            )
        )
    return (
        Picture(
            name="curve", drawing=curve("curve", losses, "loss"), label=caption, caption=caption
        ),
    )


def _exchanges(record: Record) -> Table:
    total = sum(latest.bytes_sent + latest.bytes_received for latest in record.rounds)
    # Only neighbours are merged, so the table keeps the order of the questions.
    runs = [list(rounds) for _, rounds in groupby(record.own_rounds, lambda latest: latest.query)]
    about = "in order"
    if n_others := len(record.splits) - 1 if record.splits else 0:
        about = f"of which these, in order, are the first split's; {plural(n_others, 'other')} had "
        about += "the like without descriptions"
    return Table(
        caption=f"{plural(len(record.rounds), 'exchange')} with the clients, "
        f"{size(total)} in all, {about}",
        headers=("Asked", "Times", "Clients that answered", "Sent", "Received"),
        rows=tuple(_same_query(rounds) for rounds in runs),
    )


def _same_query(rounds: list[Round]) -> tuple[str, ...]:
    answered = [len(latest.answered) for latest in rounds]
    least, most = min(answered), max(answered)
    who = count(least) if least == most else f"{count(least)} to {count(most)}"
    return (
        QUERY_NAMED[rounds[0].query].title,
        count(len(rounds)),
        f"{who} of {count(max(len(latest.asked) for latest in rounds))}",
        size(sum(latest.bytes_sent for latest in rounds)),
        size(sum(latest.bytes_received for latest in rounds)),
    )
