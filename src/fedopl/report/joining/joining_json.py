"""All facts about joining as JSON, for programs."""

import json
from typing import Any

from fedopl.analysis.attribution import (
    SOURCES,
    ClientShift,
    context_moments,
    shifts_from_mixture,
    why_unknown,
)
from fedopl.analysis.modelled_gains import (
    PLAIN,
    complexity_of,
    global_bound,
    largest_score,
    second_moments,
)
from fedopl.base.estimates import Estimate
from fedopl.report.joining.advising import JoiningFacts, nothing_to_say
from fedopl.report.joining.alternatives import gap_from_rows, regret_bound, shift_at
from fedopl.results.diagnosis import Coalitions, Diagnosis
from fedopl.results.files.table_files import diagnosis_json, search_json
from fedopl.results.mixture_search import SkewPath
from fedopl.study.mixture import renormalised
from fedopl.study.private.added_up import adds_under_masks
from fedopl.theory.skew import skewness

Json = dict[str, Any]
_GAINS = ("personal_over_shared", "personal_over_alone", "shared_over_alone")


def joining_json(facts: JoiningFacts) -> Json:
    """The facts as JSON, about all clients or about the one that was asked about."""
    record, of = facts.record, facts.of_clients
    moments = second_moments(record)
    skew = skewness(record.mixture, record.rows)
    return {
        "study": record.study.name,
        "why_nothing": nothing_to_say(record),
        "constant": facts.constant,
        "clients": list(facts.clients),
        "rows": record.rows,
        "mixture": renormalised(record.mixture, record.mixture.keys()),
        "skewness": skew,
        "effective_rows": sum(record.rows.values()) / skew,
        "complexity": complexity_of(record.study),
        "second_moments": moments,
        "largest_second_moment": max(moments.values()),
        "largest_score": largest_score(record.study),
        "bounds": _bounds(facts),
        "advice": {n: _picked(a, "decision", "gain", "reason") for n, a in of(facts.advice)},
        "three_ways": {
            n: {**_picked(one, "decision", "best", *_GAINS), "as_good": list(one.as_good)}
            for n, one in of(facts.ways)
        },
        "modelled": {
            n: {
                "value": one.information.value,
                **vars(one.information),
                **_picked(one, "shift_by", "break_even"),
            }
            for n, one in of(facts.modelled)
        },
        "shifts": {n: _shift(one) for n, one in of(facts.shifts)},
        "contexts": _contexts(facts),
        **_diagnosed(facts, record.diagnosis),
        "search": json.loads(search_json(record.search)) if record.search else None,
    }


def _bounds(facts: JoiningFacts) -> Json | None:
    """Theorem 1 with the constants of its proof, and with the requested constant."""
    found, proof = global_bound(facts.record, PLAIN), global_bound(facts.record)
    if found is None or proof is None:
        return None
    plain, proven = ({**vars(bound), "total": bound.total} for bound in (found, proof))
    asked = {name: facts.constant * number for name, number in plain.items()}
    return {"proof": proven, "constant": asked}


def _picked(one: object, *names: str) -> Json:
    """The named attributes; estimates with their intervals."""
    values = {name: getattr(one, name) for name in names}
    return {n: v.as_json() if isinstance(v, Estimate) else v for n, v in values.items()}


def _shift(one: ClientShift) -> Json:
    parts: Json = {s: vars(one.parts[s]) if s in one.parts else None for s in SOURCES}
    return {**parts, "largest": one.largest, "total_variation_at_most": one.joint}


def _contexts(facts: JoiningFacts) -> Json | None:
    """Distances of each client's contexts from the mixture's, as Gaussians; null if unknown."""
    record = facts.record
    if why_unknown(record.statistics) or adds_under_masks(record.study):
        return None
    shifts = shifts_from_mixture(context_moments(record.statistics), record.mixture)
    bounds = {n: one.total_variation for n, one in shifts.items()}
    return {
        n: {
            **_picked(one, "kl", "chi_squared"),
            "total_variation": {"at_least": bounds[n].lower, "at_most": bounds[n].upper},
        }
        for n, one in facts.of_clients(shifts)
    }


def _diagnosed(facts: JoiningFacts, diagnosis: Diagnosis | None) -> Json:
    """What clients reported in a diagnosis; null if none was asked for."""
    if diagnosis is None:
        names = ("discrepancies", "paths", "coalitions", "models", "classifiers", "unknown")
        return dict.fromkeys(names)
    written, of = json.loads(diagnosis_json(diagnosis)), facts.of_clients
    return {
        "discrepancies": {
            n: _picked(one, "above", "below", "gap", "is_sure")
            for n, one in of(diagnosis.discrepancies)
        },
        "paths": {n: _path(facts, one) for n, one in of(diagnosis.paths)},
        "coalitions": _coalitions(facts, diagnosis.coalitions),
        "models": written["models"],
        "classifiers": dict(of(written["classifiers"])),
        "unknown": diagnosis.unknown,
    }


def _path(facts: JoiningFacts, path: SkewPath) -> Json:
    return {
        **_picked(path, "verdict", "cannot_tell"),
        "gap_from_rows": gap_from_rows(facts, path.target),
        "points": [
            {
                **_picked(point, "alpha", "weights", "skewness", "effective_rows"),
                "shift": shift_at(facts, path.target, point),
                "regret_bound": regret_bound(facts, point),
                **_picked(point, "at_target", "in_base", "target_gain", "base_gain"),
            }
            for point in path.points
        ],
    }


def _coalitions(facts: JoiningFacts, coalitions: Coalitions | None) -> Json | None:
    if coalitions is None:
        return None
    return {
        "compared": [
            {
                **_picked(one, "members", "weights", "stability", "leavers", "level"),
                "gains": {name: gain.as_json() for name, gain in one.gains.items()},
            }
            for one in coalitions.compared
            if set(one.members) & set(facts.clients)
        ],
        "worth_of_data": {n: e.as_json() for n, e in coalitions.worth_of_data.items()},
    }
