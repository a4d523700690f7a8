"""The regret theory applied to a run: complexity, score moments, bounds, value of information.

All numbers follow from the record; no client is asked. The theorems leave their constants open. The
constants of the proofs are far too large to be useful at usual sizes. So bounds take a constant. At
1 they show how their parts compare, not how large regret may be.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedopl.analysis.attribution import ClientShift
from fedopl.results.record import Record
from fedopl.study.mixture import Weights
from fedopl.study.study import Study
from fedopl.theory.bounds import (
    PROOF_CONSTANTS,
    GlobalBound,
    UniversalConstants,
    ValueOfInformation,
    global_regret_bound,
    regret_scale,
    value_of_information,
)
from fedopl.theory.entropy import (
    finite_entropy_integral,
    linear_entropy_integral,
    tree_entropy_integral,
)
from fedopl.theory.policy_classes import score_bound
from fedopl.theory.skew import skewness

# A bound may fail once in twenty runs.
_DELTA = 0.05
# Bounds without constants, to be multiplied by one of the reader's choice.
PLAIN = UniversalConstants(entropy=1.0, confidence=1.0)


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """𝒱_c(λ) of one client: what joining is worth to it according to the bounds."""

    information: ValueOfInformation  # at the given constant
    shift_by: str  # what its shift term is: "discrepancy" or "total variation"
    break_even: float | None  # joining pays at constants above this; None if it never pays


def complexity_of(study: Study) -> float | None:
    """An upper bound on κ(Π) of the study's policies; None for networks, where it is not known."""
    return None if study.hidden else _COMPLEXITIES[study.policy.kind](study)


def _linear_complexity(study: Study) -> float:
    if study.linear.features == "blocks":
        return linear_entropy_integral(study.n_features, study.n_actions)
    # For two actions, only the difference of their scores counts.
    n_scores = 1 if study.n_actions == 2 else study.n_actions
    return linear_entropy_integral(n_scores * (study.n_terms + 1), study.n_actions)


_COMPLEXITIES: dict[str, Callable[[Study], float]] = {
    "linear": _linear_complexity,
    "tree": lambda s: tree_entropy_integral(s.tree.depth, len(s.columns), s.n_actions),
    "finite": lambda s: finite_entropy_integral(s.n_actions + len(s.candidates)),
}


def second_moments(record: Record) -> dict[str, float]:
    """Upper bounds on V_c by client: E[max_a Γ̂(a)²] if reported, otherwise Σ_a E[Γ̂(a)²]."""
    moments = record.diagnosis.moments if record.diagnosis else {}
    found = {}
    for name, sums in sorted(record.statistics.sums.items()):
        envelope = moments[name].envelope if name in moments else None
        found[name] = float(np.sum(sums.squares)) if envelope is None else envelope.value
    return found


def global_bound(
    record: Record,
    constants: UniversalConstants = PROOF_CONSTANTS,
    weights: Weights | None = None,
) -> GlobalBound | None:
    """Theorem 1 for the run's mixture, or for other weights, with 95 % probability.

    None if the complexity of the policy class is not known.
    """
    kappa = complexity_of(record.study)
    if kappa is None:
        return None
    return global_regret_bound(
        kappa,
        max(second_moments(record).values()),
        skewness(weights or record.mixture, record.rows),
        sum(record.rows.values()),
        _DELTA,
        constants,
    )


def largest_score(study: Study) -> float | None:
    """U = 3B/η from declared bounds; None without them. Clipping also guarantees an η."""
    overlaps = [bound for bound in (study.declared.overlap, study.nuisances.clip) if bound]
    if study.largest_net is None or not overlaps:
        return None
    return score_bound(study.largest_net, max(overlaps))


def modelled(
    record: Record, shifts: dict[str, ClientShift], constant: float = 1.0
) -> dict[str, Modelled]:
    """𝒱_c(λ) = C·κ·√(V_c/n_c) − C·κ·√(V·𝔰/n) − shift, by client, if the shift is known.

    The shift is the measured discrepancy, which Theorem 2's proof needs. If it was not measured and
    bounds were declared, the shift is U·TV, with TV by Theorem 3.
    """
    moments = second_moments(record)
    kappa, largest = complexity_of(record.study), max(moments.values())
    if kappa is None:
        return {}
    skew, n_rows = skewness(record.mixture, record.rows), sum(record.rows.values())
    found = {}
    for name in sorted(moments):
        term = _shift_term(record, shifts.get(name))
        if term is None:
            continue
        shift, shift_by = term
        alone = regret_scale(kappa, moments[name], record.rows[name], constant)
        together = regret_scale(kappa, largest, n_rows, constant)
        information = value_of_information(alone, together, skew, shift)
        saved = (information.alone - information.together) / constant
        found[name] = Modelled(
            information=information,
            shift_by=shift_by,
            break_even=shift / saved if saved > 0 else None,
        )
    return found


def _shift_term(record: Record, shift: ClientShift | None) -> tuple[float, str] | None:
    if shift is None:
        return None
    measured = record.diagnosis.discrepancies if record.diagnosis else {}
    if shift.client in measured:
        return measured[shift.client].regret_gap, "discrepancy"
    bound = largest_score(record.study)
    if bound is None or shift.joint is None:
        return None
    return bound * shift.joint, "total variation"
