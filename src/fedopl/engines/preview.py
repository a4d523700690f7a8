"""Rehearsals of a study: what clients would release or refuse. They keep no ledger or scores."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.tables import text_tables
from fedopl.client.client_file import Client
from fedopl.client.disclosure.ledger import FileLedger, MemoryLedger
from fedopl.client.disclosure.private_draws import public_key
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.table.read import Contexts
from fedopl.engines.folder_doors import door_of
from fedopl.engines.in_process import InProcess, only_policy
from fedopl.messages import codec
from fedopl.messages.about_target import TellContexts, ValueAtTarget
from fedopl.messages.bundle import unbundled
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS
from fedopl.messages.evaluation.policy_fields import fields_about, n_versions_in
from fedopl.messages.learning.term_screening import JUMP_NUMBERS, feature_pairs
from fedopl.messages.message import Axis, Message, Query, array_axes
from fedopl.messages.private.noised_scores import LookPrivately, SumCellsPrivately
from fedopl.messages.private.noised_sums import SumResiduals
from fedopl.messages.refusal import Refusal, in_words
from fedopl.messages.sensitivity import declared_moves
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.linear import constant_policy
from fedopl.policies.pairwise import action_pairs
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import cell_names, grid_from
from fedopl.policies.trees.nodes import branches_of
from fedopl.results.round import Round
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.server.repeat_splits import Begun, run_splits
from fedopl.study.mixture import FOUND, AnyMixture, BestSkew, Empirical, Minimax
from fedopl.study.private.added_up import adds_under_masks, parties_of
from fedopl.study.private.privacy_plan import LEAST_PARTIES, PrivacyPlan
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.splits import split_studies
from fedopl.study.study import Study

_WITH_SCORE = "share with "


@dataclass(frozen=True, eq=False, kw_only=True)
class FieldInWords:
    """One field of an answer."""

    name: str
    axes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]  # for each axis, the names along it
    numbers: FloatArray
    noise: float | None = None  # its standard deviation, with differential privacy

    def as_text(self) -> str:
        """A table of the last two axes for each position on the other axes, with labels."""
        *outer, columns = self.labels
        if not outer:
            return text_tables(columns, [[f"{number:.6g}" for number in self.numbers]], 0)
        rows = outer.pop()
        tables = []
        for place in np.ndindex(*self.numbers.shape[:-2]):
            title = ", ".join(labels[k] for labels, k in zip(outer, place, strict=True))
            body = [
                [row, *(f"{number:.6g}" for number in line)]
                for row, line in zip(rows, self.numbers[place], strict=True)
            ]
            tables.append(text_tables([title, *columns], body))
        return "\n\n".join(tables)


@dataclass(frozen=True, eq=False, kw_only=True)
class Leaving:
    """One answer that would leave the client: to which query, and its content."""

    split: int  # of the rows, counted from one
    query: str
    answer: str
    refusal: str  # its code, or empty
    parts: tuple[FieldInWords, ...]
    scalars: dict[str, float]
    n_numbers: int  # in arrays; for a symmetric matrix, one triangle
    n_bytes: int

    def as_json(self) -> dict[str, Any]:
        """The answer as JSON data, for programs."""
        return {
            "split": self.split,
            "query": self.query,
            "answer": self.answer,
            "refusal": self.refusal or None,
            "bytes": self.n_bytes,
            **self.scalars,
            **{
                part.name: {"axes": part.axes, "labels": part.labels, "numbers": part.numbers}
                | ({} if part.noise is None else {"noise": part.noise})
                for part in self.parts
            },
        }

    def in_words(self, *, brief: bool) -> str:
        """The answer as text; if `brief`, only the shapes, without the numbers."""
        if self.refusal:
            return f"── {self.query} → refused ({self.refusal}): {in_words(self.refusal).why}\n"
        lines = [f"── {self.query} → {self.answer}, {self.n_bytes:,} bytes"]
        lines += [f"   {name} = {value:g}" for name, value in self.scalars.items()]
        for part in self.parts:
            noise = "" if part.noise is None else f", noise ± {part.noise:.3g}"
            lines.append(f"   {part.name}: {' × '.join(part.axes)} {part.numbers.shape}{noise}")
            lines += [] if brief else [part.as_text()]
        return "\n".join(lines) + "\n"


class _Listening(InProcess):
    """A transport that records the answers of one client."""

    def __init__(self, doors: Mapping[str, Door], client: str) -> None:
        super().__init__(doors)
        self.client = client
        self.heard: list[tuple[bytes, bytes]] = []

    def exchange(self, queries: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        for name, answer in super().exchange(queries):
            if name == self.client:
                self.heard.append((queries[name], answer))
            yield name, answer


def rehearse(study: Study, client: Client, data: LoggedData) -> list[Leaving]:
    """All answers of the client if it were alone and had answered nothing yet.

    Sums over its own rows are those it would send. The scores by shared outcome models and the
    learned policy depend on others; here they are made from this client's rows alone. Copies of the
    client stand in for others:

    - one copy, if the study compares clients,
    - as few copies as masks need, if answers are masked,
    - a target with the same contexts, if the study has a target.

    If the client is the target, it is asked about a policy that gives everybody the first action.
    """
    if study.is_target(client.name):
        return list(_rehearsed_target(study, client, data))
    own: dict[str, Any] = {"mixture": _own(study.mixture, client)}
    if study.privacy and study.privacy.is_secure:
        own["privacy"] = _among_stand_ins(study.privacy, client)
    # With privacy, noise depends on the number of candidates.
    if study.policy.compares_candidates and not study.privacy:
        own["policy"] = study.policy.model_copy(update={"candidates": {}})
    alone = study.model_copy(update=own)
    studies = split_studies(alone)
    return [
        left
        for place, one in enumerate(studies, start=1)
        for left in _rehearsed(one, client, data, place)
    ]


def _rehearsed(alone: Study, client: Client, data: LoggedData, split: int) -> Iterator[Leaving]:
    """The answers that would leave the client under one split."""
    doors = {client.name: door_of(alone, client, data, MemoryLedger())}
    if alone.joining.diagnose or alone.mixture.kind in FOUND:
        doors[f"like {client.name}"] = door_of(alone, client, data, MemoryLedger())
    if alone.target:
        secret = client.secret(rehearsing=True)
        like_it = Contexts(data.contexts[:], feature_names=alone.features).as_rows(alone.actions)
        doors[alone.target.client] = Door(alone.target.client, like_it, alone, secret=secret)
    if adds_under_masks(alone):
        doors |= {
            name: Door(name, data, alone, secret=client.secret(rehearsing=True))
            for name in parties_of(alone)
            if name != client.name
        }
    transport = _Listening(doors, client.name)
    conversation = Conversation(alone, transport)
    with contextlib.suppress(FederationError):  # a refusal may end the run; it is recorded
        arm = constant_policy(alone.actions[0], alone.actions, alone.features)
        stand_ins = dict.fromkeys(alone.candidates, arm)
        run_study(conversation, policies=stand_ins, alone=only_policy(doors))
    found = conversation.study  # with the terms that screening found, if any
    for left in _heard(transport, found):
        yield replace(left, split=split)


def _rehearsed_target(study: Study, client: Client, data: LoggedData) -> Iterator[Leaving]:
    """The answers that would leave a target: moments of contexts, and models' predictions."""
    transport = _Listening({client.name: door_of(study, client, data, MemoryLedger())}, client.name)
    conversation = Conversation(study, transport)
    moments = conversation.each(TellContexts(), [client.name]).get(client.name)
    if moments is not None:
        everybody = constant_policy(study.actions[0], study.actions, study.features)
        sizes = {axis: max(size) for axis, size in axis_sizes(study).items() if size}
        each = ValueAtTarget(
            models=np.zeros((n_versions_in(study), study.n_actions, study.n_terms + 1)),
            means=moments.means,
            squares=moments.squares,
            regions=np.zeros((sizes[Axis.REGIONS], study.n_features + 1)),
            **fields_about([everybody], study),
        )
        units: dict[str, Any] = {"centres": moments.means, "scales": np.ones_like(moments.means)}
        jointly = replace(each, share=0.0, slopes=np.zeros(sizes[Axis.SLOPES]), **units)
        for query in (each, jointly):
            if query.is_plausible(study):
                conversation.each(query, [client.name])
    yield from _heard(transport, study)


def _heard(transport: _Listening, study: Study) -> Iterator[Leaving]:
    """Every recorded answer, in words."""
    sizes = axis_sizes(study)
    for queries, answers in transport.heard:
        for query, answer in zip(unbundled(queries), unbundled(answers), strict=True):
            asked, told = codec.decode(query, sizes), codec.decode(answer, sizes)
            yield _leaving(study, asked, told, len(answer))


def _among_stand_ins(plan: PrivacyPlan, client: Client) -> PrivacyPlan:
    """The plan for this client and as few copies of it as masks need."""
    # If one client may drop out and one may collude, masks need one more client.
    lacking = min(plan.dropouts, 1)
    others = [f"like {client.name} {place}" for place in range(1, LEAST_PARTIES + lacking)]
    secret = client.secret(rehearsing=True)
    keys = {name: public_key(name, secret) for name in (client.name, *others)}
    few = {"keys": keys, "colluders": min(plan.colluders, 1), "dropouts": lacking}
    return plan.model_copy(update=few)


def _own(mixture: AnyMixture, client: Client) -> AnyMixture:
    """A mixture that needs the same queries as the study's, but names no other client."""
    if isinstance(mixture, BestSkew):
        return mixture.model_copy(update={"toward": client.name})
    if isinstance(mixture, Minimax):
        return mixture
    return Empirical(count="weight" if mixture.counts_weight else "rows")


def rehearse_together(
    study: Study,
    clients: Mapping[str, Client],
    data: Mapping[str, LoggedData],
    policies: Mapping[str, Policy],
) -> tuple[list[Round], str]:
    """The exchanges of a rehearsal with all clients, and why it failed if it did.

    Nothing is kept.
    """
    ledgers = {name: MemoryLedger(FileLedger(clients[name].ledger_path).entries()) for name in data}
    asked: list[Conversation] = []

    def begin(one: Study, _place: int) -> Begun:
        doors = {
            name: door_of(one, clients[name], rows, ledgers[name]) for name, rows in data.items()
        }
        asked.append(Conversation(one, InProcess(doors)))
        return Begun(asked[-1], only_policy(doors))

    failure = ""
    try:
        run_splits(study, begin, policies=policies)
    except FederationError as error:
        failure = str(error)
    return [latest for conversation in asked for latest in conversation.rounds], failure


def _leaving(study: Study, query: Message, answer: Message, n_bytes: int) -> Leaving:
    parts, scalars = [], {}
    left_out = query.left_out_in(study) if isinstance(query, Query) else frozenset()
    for name, kind in codec.FIELDS[type(answer)]:
        if name in left_out:
            continue
        content = getattr(answer, name)
        if isinstance(kind, tuple):
            part = _part(_labels(study, query), name, kind, content)
            parts.append(replace(part, noise=_noise(study, query, answer, name)))
        elif kind in (int, float) and name != "exchange":
            scalars[name] = content
    return Leaving(
        split=1,
        query=type(query).__name__,
        answer=type(answer).__name__,
        refusal=answer.reason.name if isinstance(answer, Refusal) else "",
        parts=tuple(parts),
        scalars=scalars,
        n_numbers=sum(
            codec.n_sent(axes, getattr(answer, name).shape)
            for name, axes in array_axes(type(answer)).items()
        ),
        n_bytes=n_bytes,
    )


def _noise(study: Study, query: Message, answer: Message, field: str) -> float | None:
    """The standard deviation of the noise in a field; None if the field is exact."""
    moves = declared_moves(type(answer))[field]
    if study.privacy is None or moves is None or not moves.noise:
        return None
    setting = PrivateSetting(study)
    if isinstance(query, SumResiduals):
        return setting.step_deviation(query.n_terms)
    return setting.deviation(moves.noise)


def _part(
    labels: dict[Axis, tuple[str, ...]], name: str, axes: tuple[Axis, ...], numbers: FloatArray
) -> FieldInWords:
    named = []
    for axis, size in zip(axes, numbers.shape, strict=True):
        known = labels.get(axis, ())
        if axis is Axis.CELL_NUMBERS and len(known) > size:  # every row has every score
            known = tuple(one for one in known if not one.startswith(_WITH_SCORE))
        fits = len(known) == size
        named.append(known[:size] if fits else tuple(f"{axis.value} {k + 1}" for k in range(size)))
    bent = len(labels[Axis.FEATURES]) > len(labels[Axis.PARAMETERS])
    values = tuple("terms" if bent and axis is Axis.FEATURES else axis.value for axis in axes)
    return FieldInWords(name=name, axes=values, labels=tuple(named), numbers=numbers)


def _labels(study: Study, query: Message) -> dict[Axis, tuple[str, ...]]:
    """The names along each axis, if it has names."""
    features = (*study.features, "intercept")
    terms = (*study.terms.names, "intercept") if study.terms else features
    labels: dict[Axis, tuple[str, ...]] = {
        Axis.ACTIONS: study.actions,
        Axis.PARAMETERS: features,
        Axis.TARGET_VALUES: ("policy", *study.actions),
        Axis.BALANCED: (*study.features, *(f"{feature}²" for feature in study.features)),
        Axis.REGRESSION: (*terms, "outcome"),
        Axis.PAIRS: tuple(
            f"{study.actions[a]} over {study.actions[b]}" for a, b in action_pairs(study.n_actions)
        ),
        Axis.FEATURES: terms,
        Axis.VERSIONS: tuple(
            "all rows" if fold is None else f"without fold {fold + 1}" for fold in study.left_out
        ),
        Axis.FEATURE_PAIRS: tuple(f"{a} × {b}" for a, b in feature_pairs(study)),
        Axis.JUMP_NUMBERS: JUMP_NUMBERS,
        Axis.NUMBERS: study.privacy.measured if study.privacy else (),
        Axis.TERMS: terms,
        Axis.CUT_COLUMNS: tuple(column.name for column in study.cut_columns),
        Axis.FIT_NUMBERS: FIT_NUMBERS,
        Axis.CELL_NUMBERS: (
            "rows",
            "share",
            *study.actions,
            *(f"{_WITH_SCORE}{action}" for action in study.actions),
            *(f"doubt of {action}" for action in study.actions if study.doubts_leaves),
        ),
    }
    if isinstance(query, SumNearThresholds | LookPrivately):
        looks = query.looks(study) if isinstance(query, SumNearThresholds) else [query.look(study)]
        trees = [TreePolicy.of(look.root, study) for look in looks]
        labels[Axis.QUESTIONS] = tuple(
            tree.question(branch) for tree in trees for branch in branches_of(tree.root)
        )
    if isinstance(query, SumCellsPrivately):
        tables = PrivateSetting(study).tables
        cells = tuple(cell_names(tables.grid, study.columns))
        labels[Axis.CELLS] = tuple(cells[place] for place in tables.places)
    if isinstance(query, SumCells):
        grid = grid_from(study.tree, study.columns, query.n_cuts, query.cuts)
        labels[Axis.CELLS] = tuple(cell_names(grid, study.columns))
    return labels
