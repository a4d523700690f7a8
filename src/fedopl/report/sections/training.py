"""How the policy was learned, who joined or left since, and how to repeat it."""

import json
import platform
from importlib.metadata import version
from itertools import groupby
from typing import Any

import numpy as np

from fedopl.base.labels import quoted
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.policies.neural import NeuralPolicy
from fedopl.report.explain.learning_words import caution_words, weights_by_noise
from fedopl.report.figures.line_charts import curve
from fedopl.report.parts import Code, Folded, Part, Picture, Points, Section, Table, Text, texts
from fedopl.report.words.numbers import Span, count, decimal, plural, size
from fedopl.report.words.policy_labels import OutcomeWords, label, opened
from fedopl.results.membership import (
    Change,
    Membership,
    Valuation,
    known_of_it,
    since_then,
    who_changed,
)
from fedopl.results.record import Record
from fedopl.results.round import Round
from fedopl.results.value_tables import LOCAL, LOGGING, Row, arm_name
from fedopl.study.study import Study

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
        caption = (
            f"Loss of the network on rows kept back, before each of {len(losses)} rounds, less "
            "that of the linear policy alone: below 0 the network helps."
        )
        if kept := _kept_round(record):
            caption += f" The network at the start of round {count(kept)} was kept."
    drawing = curve("curve", losses, "loss")
    return (Picture(name="curve", drawing=drawing, label=caption, caption=caption),)


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


_AS_BEFORE = (
    "Clients joined and left after the run. The present clients are again those of the run, and "
    "their sums give the same policy. All results below are those of the run."
)


def who_is_in(record: Record) -> Section | None:
    """The section; None if the clients are those of the original run."""
    membership = record.membership
    if membership is None:
        return None
    intro = _AS_BEFORE
    since: tuple[Part, ...] = ()
    if not record.values.rows:
        intro = (
            f"After the run, {who_changed(membership)}. The policy was solved again from the sums "
            f"of the present clients: {quoted(sorted(record.rows))}. "
            f"{'No other client' if membership.joined else 'No client'} was asked anything."
        )
        before = f"About the earlier policy, the run says: {opened(membership.before.verdict)}"
        since = (*_known(record, membership), Text(before))
    parts = (Text(intro), _changes(membership.changes), *since)
    return Section(name="members", title="Who is in", parts=parts)


def _changes(changes: tuple[Change, ...]) -> Table:
    return Table(
        caption="Who joined and who left, the first first (times are UTC)",
        headers=("Client", "What", "When", "Rows learned from", "What it was asked"),
        rows=tuple(
            (one.client, one.kind, one.when.replace("T", " ")[:16], count(one.rows), _asked(one))
            for one in changes
        ),
        text_columns=(1, 2),
    )


def _asked(change: Change) -> str:
    if change.kind == "left":
        return "nothing"
    return f"{count(change.exchanges)} questions, {size(change.bytes_received)} of answers"


def _known(record: Record, membership: Membership) -> tuple[Part, ...]:
    """What clients report about the current policy, and what is not known."""
    known = membership.of_policy(record.policy)
    unknown = [
        "What the policy is worth for all together: clients that were not asked have not "
        "valued it, and the sums that it was learned from cannot show what it is worth on "
        "other rows.",
        *since_then(record, membership)[:-1],
    ]
    if record.tree and record.tree.closer and record.second_look is None:
        unknown.append(
            "Where thresholds close to those of the grid would lie: clients were asked about "
            "the thresholds of the earlier tree, and this tree has other questions."
        )
    if record.study.personalises:
        unknown.append(
            "What personal policies would be now: those of the earlier run started from what "
            "all other clients of that time had learned, and no client solved for a new one. "
            "A new run with all present clients has them again."
        )
    return (
        Text(known_of_it(record, membership)),
        *((_gains(record, known),) if known.gains else ()),
        Text("What is not known, and what has not changed:"),
        Points(tuple(unknown)),
    )


def _gains(record: Record, known: Valuation) -> Table:
    against = {
        name: f"Over {label(record.study, name)}"
        for name in (LOGGING, arm_name(record.best_arm), LOCAL)
    }
    rows = {(row.against, row.client): row for row in known.gains}
    clients = sorted({row.client for row in known.gains})
    unit = OutcomeWords.of(record.study).name
    return Table(
        caption=f"Gain of the policy as it is now in {unit} per decision, at the clients that "
        "valued it, with 95 % intervals (positive is better)",
        headers=("Client", opened(record.study.evaluation.valued("rows")), *against.values()),
        rows=tuple(
            (
                client,
                count(min(one.estimate.n_rows for one in known.gains if one.client == client)),
                *(
                    _gain_cell(rows.get((name, client)), client in known.in_doubt)
                    for name in against
                ),
            )
            for client in clients
        ),
    )


def _gain_cell(row: Row | None, in_doubt: bool) -> str:
    if row is None:
        return "not told"
    span = Span.of(row.estimate, row.level)
    return f"{'in doubt' if in_doubt else span.number}\n({span.interval})"


_PACKAGES = ("fedopl", "numpy", "scipy", "pydantic", "matplotlib")

_SINCE = (
    "That repeats the run as it began, with its first clients. The section Who is in lists "
    "who joined or left since, in order; fedopl join and fedopl leave repeat that."
)


def settings(record: Record) -> Section:
    """The section."""
    study = record.study
    applied = {**study.model_dump(mode="json"), "precision": study.linear.precision}
    secrets = ", the same secrets of the clients" if study.privacy else ""
    every = Table(
        caption="Every setting of the study",
        headers=("Setting", "Value"),
        rows=tuple(_flat(applied)),
        text_columns=(1,),
    )
    parts = (
        Text(
            f"The study is all that was agreed on. With it, the same rows{secrets} and the "
            "same versions, a new run gives the same result to the last digit. Every message "
            "carried its hash, so no client answered for another study."
        ),
        *_start(record),
        _versions(record),
        Folded(summary="Every setting", parts=(every,)),
        Folded(
            summary="The study as a file",
            parts=(
                Text(f"Save this as study.json; it has the hash above.{_unread(study)}"),
                Code(text=study.model_dump_json(indent=1), label="The study as JSON"),
            ),
        ),
    )
    return Section(name="settings", title="How to repeat it", parts=parts)


def _unread(study: Study) -> str:
    """A sentence on the hashed form's `precision` where no policy of this kind reads it."""
    applied, said = study.linear.precision, study.model_dump(mode="json")["precision"]
    if applied == said:
        return ""
    return (
        f" Its precision, {said}, is not read for this kind of policy: linear policies of this "
        f"study are solved with {applied}."
    )


def _start(record: Record) -> tuple[Part, ...]:
    by_learn = "The run was started from Python, by fedopl.learn with the settings below."
    by_command = "With the study's file and a folder for each client, this starts it:"
    command = Code(text="fedopl run study.toml --clients clients", label="The command")
    started = (Text(by_command), command) if record.study.table else (Text(by_learn),)
    return (*started, *texts(_SINCE if record.membership else ""))


def _versions(record: Record) -> Table:
    study, agreed = record.study, record.study.before_screening
    what = f"With the {'ranges' if study.privacy else 'pairs'} that were found"
    found = () if study == agreed else ((what, study.digest.hex()),)
    return Table(
        caption="The study's hash, and the versions this report was written with",
        headers=("What", "Which"),
        rows=(
            ("Hash of the study", agreed.digest.hex()),
            *found,
            ("Seed", str(record.study.seed)),
            ("Python", platform.python_version()),
            *((package, version(package)) for package in _PACKAGES),
        ),
        text_columns=(1,),
    )


def _flat(content: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by their dotted names."""
    rows: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value = {str(place): entry for place, entry in enumerate(value, start=1)}
        if isinstance(value, dict) and value:
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            rows.append((f"{prefix}{name}", ", ".join(map(str, value)) or "none"))
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            rows.append((f"{prefix}{name}", text))
    return rows
