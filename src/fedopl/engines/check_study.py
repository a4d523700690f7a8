"""Checks before a run: whether clients' tables fit the study, and which queries they refuse."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedopl.base.errors import StorageError
from fedopl.base.tables import html_text
from fedopl.client.aggregator_file import read_parties
from fedopl.client.client_file import FILE_NAME, Client, read_clients
from fedopl.client.inspect_table import Examined, FeatureSummary, examine
from fedopl.engines.clients import check_regions
from fedopl.engines.folder_doors import check_history
from fedopl.engines.in_process import check_packages
from fedopl.engines.preview import rehearse_together
from fedopl.messages.refusal import in_words
from fedopl.policies.policy import Policy
from fedopl.study.mixture import Empirical
from fedopl.study.private.privacy_plan import contract_of
from fedopl.study.study import Study
from fedopl.study.study_file import check_named, read_study

# Means of a feature that differ by this many standard deviations suggest different units.
FAR_APART = 3.0
# Mean row weights of two clients that differ by this factor are reported.
UNLIKE_WEIGHTS = 2.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Readiness:
    """The result of a check: clients' tables, what they would refuse, how they differ.

    `print` it.
    """

    clients: dict[str, Examined]
    refusals: dict[str, tuple[tuple[str, str], ...]]  # client → (query, code)
    differences: tuple[str, ...]
    problems: tuple[str, ...]  # of the study with all clients together
    contract: str  # which one holds, in a sentence
    n_terms: int  # of models, an intercept among them

    @property
    def is_ready(self) -> bool:
        """Whether the study can run with all clients."""
        stuck = chain.from_iterable(client.problems for client in self.clients.values())
        return not self.problems and not any(stuck)

    @property
    def left_out(self) -> list[str]:
        """One line on the clients that have too few rows to take part, if there are any."""
        few = {n: own.data for n, own in self.clients.items() if own.data and not own.takes_part}
        if not few:
            return []
        named = ", ".join([f"{name} ({data.n_rows:,} rows)" for name, data in few.items()])
        return [f"take no part, with fewer rows than minimum_rows: {named}"]

    @property
    def without_sums(self) -> list[str]:
        """One line on the clients that add no sums of terms, if there are any."""
        most = {n: own.most_terms for n, own in self.clients.items() if own.takes_part}
        few = [name for name, own in most.items() if own < self.n_terms]
        if not few:
            return []
        return [
            f"scored and valued, but not learned from (parameter_share): {', '.join(few)}; with at "
            f"most {min(most.values()):,.0f} terms, an intercept among them, everybody would be"
        ]

    def __str__(self) -> str:
        parts = [self.contract, *(self._client(name) for name in self.clients)]
        if self.left_out:
            parts.append("Clients left out:\n" + _marked(self.left_out, "!"))
        if self.without_sums:
            parts.append("Clients without sums of terms:\n" + _marked(self.without_sums, "!"))
        if self.differences:
            parts.append("Differences between clients:\n" + _marked(self.differences, "!"))
        if self.problems:
            parts.append("Problems with all together:\n" + _marked(self.problems, "✗"))
        return "\n\n".join([*parts, READY if self.is_ready else NOT_READY])

    def as_json(self) -> dict[str, Any]:
        """The result as JSON data, for programs."""
        return {
            "ready": self.is_ready,
            "problems": self.problems,
            "differences": self.differences,
            "clients": {
                name: {
                    "rows": found.data.n_rows if found.data else None,
                    "problems": found.problems,
                    "rules": found.rules,
                    "takes_part": found.takes_part,
                    "cautions": found.cautions,
                    "refusals": [{"query": q, "code": c} for q, c in self.refusals[name]],
                    "support": _support_as_json(found),
                    "outcomes_missing": found.attrition.lost if found.attrition else {},
                }
                for name, found in self.clients.items()
            },
        }

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def _client(self, name: str) -> str:
        found = self.clients[name]
        refusals = [
            f"would refuse {query} ({code}): {in_words(code).why}. {in_words(code).remedy}"
            for query, code in self.refusals[name]
        ]
        parts = [
            f"── {name}: {found.in_words}" if found.data else f"── {name}",
            _marked(found.rules, "·"),
            _marked(found.problems, "✗"),
            f"\n{found.overlap.table()}\n" if found.overlap else "",
            f"{found.fit.table()}\n" if found.fit else "",
            _marked((*found.cautions, *refusals), "!"),
        ]
        return "\n".join(part for part in parts if part)


def _support_as_json(found: Examined) -> dict[str, Any]:
    if found.overlap is None:
        return {}
    return {
        action: {"rows": int(n), "effective_rows": float(effective), "share_below_floor": float(b)}
        for action, n, effective, b in zip(
            found.overlap.action_names,
            found.overlap.rows,
            found.overlap.effective_rows,
            found.overlap.share_below_floor,
            strict=True,
        )
    }


READY = "Ready: the study can run with these clients."
NOT_READY = "Not ready: solve what is marked ✗ first; nothing was learned or sent."


def _marked(lines: Iterable[str], mark: str) -> str:
    return "\n".join(f"  {mark} {line}" for line in lines)


def check(study: str | Path, clients: str | Path) -> Readiness:
    """Compare every client's data with a study file, before anything is learned."""
    agreed, candidates = read_study(study)
    check_packages(agreed)
    parties, found = read_parties(clients), read_clients(clients)
    check_named(study, agreed, parties)
    if not (Path(clients) / FILE_NAME).is_file():  # a client that checks itself sees no others
        check_regions(agreed, parties)
    return check_clients(agreed, found, candidates)


def check_clients(
    study: Study, clients: Mapping[str, Client], candidates: Mapping[str, Policy]
) -> Readiness:
    """Inspect every client's table, compare the clients, then rehearse the study."""
    examined = {name: _examined(study, client) for name, client in sorted(clients.items())}
    refusals, failure = _rehearsal(study, examined, clients, candidates)
    never = _never_taken(study, examined)
    problems = [f"no row took '{a}': take it out of the study's actions" for a in never]
    return Readiness(
        clients=examined,
        refusals=refusals,
        differences=tuple(_differences(study, examined)),
        contract=contract_of(study),
        n_terms=study.n_terms + 1,
        problems=(*problems, *([f"the study would fail: {failure}"] if failure else [])),
    )


def _examined(study: Study, client: Client) -> Examined:
    """What is found at a client; a lost history of released answers is a problem, too."""
    found = examine(client, study)
    if found.data is None:
        return found
    try:
        check_history(study, client, found.data)
    except StorageError as error:
        return replace(found, problems=(*found.problems, str(error)))
    return found


def _rehearsal(
    study: Study,
    examined: Mapping[str, Examined],
    clients: Mapping[str, Client],
    candidates: Mapping[str, Policy],
) -> tuple[dict[str, tuple[tuple[str, str], ...]], str]:
    """What clients refuse in a rehearsal, and why it failed.

    There is a rehearsal only if no client has a problem.
    """
    refused: dict[str, dict[tuple[str, str], None]] = {name: {} for name in examined}
    data = {name: e.data for name, e in examined.items() if e.data}
    failure = ""
    if any(e.problems for e in examined.values()):
        pass
    elif not any(e.takes_part for e in examined.values()):
        failure = "no client has rows enough to take part (minimum_rows)"
    else:
        if study.aggregators:  # members are asked one by one, and a mixture is of aggregators
            counts = "weight" if study.mixture.counts_weight else "rows"
            study = study.model_copy(update={"mixture": Empirical(count=counts)})
        rounds, failure = rehearse_together(study, clients, data, candidates)
        for latest in rounds:
            for name, code in latest.refused.items():
                if examined[name].takes_part:  # who does not is named in one line
                    refused[name][latest.query, code] = None
    return {name: tuple(refusals) for name, refusals in refused.items()}, failure


def _never_taken(study: Study, examined: Mapping[str, Examined]) -> list[str]:
    sources = [found for found in examined.values() if not found.is_target]
    taken = [found.data.rows_per_action for found in sources if found.data]
    if len(taken) < len(sources):
        return []
    return [a for a, n in zip(study.actions, np.sum(taken, axis=0), strict=True) if not n]


def _differences(study: Study, examined: Mapping[str, Examined]) -> list[str]:
    readable = {n: found for n, found in examined.items() if found.data and found.features}
    if len(readable) < 2:
        return []
    sources = {n: e for n, e in readable.items() if not e.is_target}
    found = _weight_differences(study, sources) if sources else []
    for position, action in enumerate(study.actions):
        without = [n for n, e in sources.items() if e.data and not e.data.rows_per_action[position]]
        if without and len(without) < len(sources):
            found.append(f"action '{action}' was never taken at {', '.join(without)}")
    for feature in study.features:
        found += _feature_differences(
            feature, {n: e.features[feature] for n, e in readable.items() if e.features}
        )
    return found


def _weight_differences(study: Study, readable: Mapping[str, Examined]) -> list[str]:
    """A note if mean row weights differ much between clients, in words.

    Then it matters whether clients count by rows or by the weight of their rows.
    """
    weights = {n: e.data.weights for n, e in readable.items() if e.data}
    means = {n: 1.0 if own is None else float(np.mean(own)) for n, own in weights.items()}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if study.mixture.kind != "empirical" or means[high] < UNLIKE_WEIGHTS * means[low]:
        return []
    said = f"rows weigh {means[high]:.4g} on average at {high} and {means[low]:.4g} at {low}"
    if study.mixture.counts_weight:
        return [f"{said}, and clients count by row weight: are weights on the same scale?"]
    return [
        f"{said}, but clients count by their numbers of rows; where they should count by weight, "
        'say count = "weight" in [mixture]'
    ]


def _feature_differences(name: str, by_client: Mapping[str, FeatureSummary]) -> list[str]:
    """A note if a feature is constant at some clients, or may be in another unit at one."""
    constant = [client for client, found in by_client.items() if found.is_constant]
    if constant and len(constant) < len(by_client):
        return [f"feature '{name}' varies, but not at {', '.join(constant)}"]
    if all(found.is_flag for found in by_client.values()):
        return []  # a yes-or-no feature has no unit
    means = {client: found.mean for client, found in by_client.items()}
    spread = float(np.median([found.deviation for found in by_client.values()]))
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if spread > 0 and means[high] - means[low] > FAR_APART * spread:
        return [
            f"feature '{name}' is {means[high]:.4g} on average at {high} and {means[low]:.4g} at "
            f"{low}: is it in the same unit?"
        ]
    return []
