"""What a client has released over the lifetime of its rows, by study, from its ledger."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fedopl.client.disclosure.ledger import Entry
from fedopl.client.disclosure.limits import Limits
from fedopl.privacy.accountant import epsilon_for, mu_of_several
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


@dataclass(kw_only=True)
class StudySummary:
    """A summary of one study's answers."""

    study: str  # its digest
    name: str = ""
    to: list[str] = field(default_factory=list)  # everybody who asked
    first: str = ""
    last: str = ""
    answers: dict[str, int] = field(default_factory=dict)  # the number of different ones, by query
    refusals: int = 0
    n_bytes: int = 0
    counts: bool = False  # whether it counts toward the limit on studies
    privacy: float = 0.0  # μ of its promise of differential privacy; 0 where it has none
    slip: float = 0.0  # the probability with which it may disclose more than that


def summaries(entries: Iterable[Entry]) -> list[StudySummary]:
    """All studies in the ledger, in the order in which they were first answered."""
    found: dict[str, StudySummary] = {}
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        study = entry.counts_for
        own = found.setdefault(study, StudySummary(study=study, first=entry.when))
        own.name, own.last = entry.study_name or own.name, entry.when
        own.n_bytes += entry.n_bytes
        own.to += [entry.to] if entry.to and entry.to not in own.to else []
        own.refusals += bool(entry.reason)
        if not entry.was_answered or (entry.study, entry.query_sha256) in seen:
            continue  # a repeated query discloses nothing new and costs nothing
        seen.add((entry.study, entry.query_sha256))
        own.counts, own.privacy, own.slip = True, entry.privacy, entry.slip
        if not entry.reason:
            own.answers[entry.query] = own.answers.get(entry.query, 0) + 1
    return list(found.values())


def promised_in_all(studies: Iterable[StudySummary], limits: Limits) -> str:
    """The epsilon that all studies together have spent of what the owner allows, in words."""
    answered = [study for study in studies if study.counts]
    others = sum(not one.privacy for one in answered)
    spent = _epsilon([(one.privacy, one.slip) for one in answered], limits)
    said = f"epsilon: {spent:.3g} of {limits.epsilon:g} spent, at delta {limits.delta:g}"
    if not others:
        return said
    return f"{said}; this does not cover the {others:,} without differential privacy"


def _epsilon(promises: Sequence[tuple[float, float]], limits: Limits) -> float:
    """The ε of promises, each a μ and a slip, at the owner's δ; δ covers slips, too."""
    left = limits.delta - sum(slip for _, slip in promises)
    return epsilon_for(mu_of_several(mu for mu, _ in promises), left) if left > 0 else math.inf


def left_for(study: Study, studies: Iterable[StudySummary], limits: Limits) -> str:
    """How much of an owner's limit is spent, and with this study, in words."""
    if study.privacy is None:
        raise TypeError("the study has no differential privacy")
    others = [
        (one.privacy, one.slip) for one in studies if one.counts and one.study != study.digest.hex()
    ]
    own = PrivateSetting(study).lifetime
    before, after = _epsilon(others, limits), _epsilon([*others, own], limits)
    verdict = "" if after <= limits.epsilon else ", so it would be refused"
    return (
        f"epsilon {before:.3g} of {limits.epsilon:g} spent by other studies, {after:.3g} with this "
        f"one, at delta {limits.delta:g}{verdict}"
    )
