"""Runs a study with a door for each client, all in this process."""

import secrets
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedopl.base.errors import FederationError, OptionError
from fedopl.base.labels import quoted
from fedopl.client.disclosure.ledger import Ledger, MemoryLedger
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.packed_ledger import PackedLedgers
from fedopl.client.disclosure.private_draws import SEED_ALONE, kept_secret, public_key
from fedopl.client.disk.store import FolderStore, Store
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Rule
from fedopl.engines.clients import Nested, fewest_members, in_regions
from fedopl.engines.in_process import (
    Answering,
    DoorsOnDemand,
    InProcess,
    fingerprint_of,
    only_policy,
)
from fedopl.engines.runs import Run
from fedopl.messages.refusal import RefusalCode, in_words
from fedopl.policies.kinds import other_permissions
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.files.run_folder import writing
from fedopl.server.exchange.conversation import Conversation, Progress
from fedopl.server.exchange.journal import Journal
from fedopl.server.repeat_splits import Begun, journal_folder, run_splits
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.study import Study

_MOST_NAMED = 3  # clients that an error names with one reason


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a run in one process is carried out. These settings do not change the results."""

    threads: int = 1  # how many clients work at once
    # A folder. If the same call is made again after an interruption, the run continues from it. It
    # also holds the clients' scores, so it is as private as their rows.
    journal: str | Path | None = None
    progress: Progress | None = None  # called after every exchange
    # With differential privacy, the secret from which noise is derived. By default it is new each
    # time. A caller who sets it, to get the same noise again, must keep it secret.
    secret: str | None = None


def run_in_memory(
    study: Study,
    clients: Mapping[str, LoggedData],
    given: Mapping[str, Any],
    limits: Limits,
    running: Running,
    regions: Nested | None = None,
) -> Run:
    """Run the study with a door for each client, all in this process.

    `given` holds what is code: candidates by name, and the user's regressor.
    """
    candidates: Mapping[str, Policy | Rule] = given["candidates"]
    rules = {name: rule for name, rule in candidates.items() if not isinstance(rule, Policy)}
    for name, rule in rules.items():
        if not callable(rule):
            raise OptionError(f"candidates: '{name}' is neither a policy nor a function")
    journal = Path(running.journal) if running.journal else None
    # Scores are stored beside the journal, because the journal's answers were computed from them.
    store = FolderStore(journal / "scores") if journal else None
    secret = secret_for_noise(running) if study.privacy else SEED_ALONE
    own: dict[str, Any] = {"limits": limits, "rules": rules, "secret": secret}
    own["regressor"] = given["regressor"]
    on_demand = not isinstance(clients, dict)
    ledgers: Mapping[str, Ledger] = (
        PackedLedgers((*clients, *study.aggregators))
        if on_demand
        else {name: MemoryLedger() for name in (*clients, *study.aggregators)}
    )
    fingerprint = fingerprint_of(clients) if journal else ""
    if journal and own["regressor"] is not None:
        fingerprint += f" {own['regressor']!r}"  # another regressor makes it another run

    opened: list[Mapping[str, Door]] = []

    def begin(one: Study, place: int) -> Begun:
        def door_to(name: str, data: LoggedData, kept: Store | None) -> Door:
            return Door(name, data, one, ledger=ledgers[name], store=kept, **own)

        doors: Mapping[str, Door] = (
            DoorsOnDemand(clients, door_to, store)
            if on_demand
            else {name: door_to(name, data, store) for name, data in clients.items()}
        )
        if study.personalises or study.personalises_at_home:
            opened.append(doors)
        answering: Mapping[str, Answering] = doors
        if regions is not None:
            fewest = fewest_members(limits)
            answering = in_regions(regions, doors, one, ledgers.__getitem__, fewest)
        transport = InProcess(answering, running.threads)
        kept = Journal(journal_folder(journal, place) if journal else None, fingerprint)
        return Begun(Conversation(one, transport, kept, running.progress), only_policy(answering))

    policies = {name: p for name, p in candidates.items() if isinstance(p, Policy)}
    for name, one in policies.items():
        if (fault := other_permissions(one, study)) is not None:
            raise OptionError(f"candidates: '{name}': {fault}")
    with writing(journal) if journal else nullcontext():
        try:
            record = run_splits(study, begin, policies=policies)
        except FederationError as error:
            raise FederationError(f"{error}{_in_ledgers(ledgers)}") from None
    found = _personal_policies(opened[0], record.policy) if opened else {}
    return replace(Run.of(record, ledgers), solved_for_clients=found)


def _personal_policies(doors: Mapping[str, Door], shared: Policy | None) -> dict[str, Policy]:
    """The clients' personal policies, by name; the caller holds all rows.

    In a study with differential privacy, they are solved now, from the shared policy.
    """
    if isinstance(shared, LinearPolicy) and all(
        d.study.personalises_at_home for d in doors.values()
    ):
        return {name: door.solved_at_home(shared) for name, door in sorted(doors.items())}
    found = {name: door.personal_policy for name, door in sorted(doors.items())}
    return {name: policy for name, policy in found.items() if policy is not None}


def _in_ledgers(ledgers: Mapping[str, Ledger]) -> str:
    """Why clients withheld their last answer: whoever holds all rows may read all ledgers."""
    by_reason: dict[str, list[str]] = {}
    for name, ledger in ledgers.items():
        latest = ledger.entries()[-1:]
        if latest and latest[0].reason and latest[0].why in RefusalCode.__members__:
            by_reason.setdefault(latest[0].why, []).append(name)
    lines = [
        f"\n  {code} in the ledger of {quoted(names[:_MOST_NAMED])}"
        f"{' and others' if len(names) > _MOST_NAMED else ''}: {in_words(code).why}. "
        f"{in_words(code).remedy}"
        for code, names in by_reason.items()
    ]
    return "".join(lines)


def with_keys(privacy: PrivacyPlan, clients: Mapping[str, LoggedData], secret: str) -> PrivacyPlan:
    """The plan with keys for these clients, which are all in this process."""
    keys = {name: public_key(name, secret) for name in sorted(clients)}
    return PrivacyPlan.model_validate(privacy.model_dump() | {"keys": keys})


def secret_for_noise(running: Running) -> str:
    """The secret from which noise is derived; a seed that others know would not protect.

    A resumed run has the secret it began with. With another secret, other rows would be held out.
    """
    if running.secret:
        return running.secret
    if running.journal:
        return kept_secret(Path(running.journal) / "secret")
    return secrets.token_hex(32)
