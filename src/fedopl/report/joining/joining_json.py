"""All facts about joining as JSON, for programs."""

import json
from typing import Any

from fedopl.analysis.attribution import SOURCES, ClientShift
from fedopl.analysis.context_shifts import (
    ContextShift,
    context_moments,
    shifts_from_mixture,
    why_unknown,
)
from fedopl.analysis.modelled_gains import (
    PLAIN,
    Modelled,
    complexity_of,
    global_bound,
    largest_score,
    second_moments,
)
from fedopl.analysis.three_ways import ThreeWays
from fedopl.base.estimates import Estimate
from fedopl.report.joining.context import JoiningFacts, nothing_to_say
from fedopl.report.joining.skew_paths import gap_from_rows, regret_bound, shift_at
from fedopl.results.diagnosis import Coalition, Coalitions, Diagnosis
from fedopl.results.files.table_files import diagnosis_json, search_json
from fedopl.results.mixture_search import PathPoint, SkewPath
from fedopl.study.mixture import renormalised
from fedopl.study.private.added_up import adds_under_masks
from fedopl.theory.bounds import GlobalBound
from fedopl.theory.skew import skewness

Json = dict[str, Any]


def _ways(one: ThreeWays) -> Json:
    gains = ("personal_over_shared", "personal_over_alone", "shared_over_alone")
    return {**_picked(one, "decision", "best", *gains), "as_good": list(one.as_good)}


def joining_json(facts: JoiningFacts) -> Json:
    """The facts as JSON, about all clients or about the one that was asked about."""
    record = facts.record
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
        "advice": {
            n: _picked(one, "decision", "gain", "reason")
            for n, one in facts.advice.items()
            if n in facts.clients
        },
        "three_ways": {n: _ways(one) for n, one in facts.ways.items() if n in facts.clients},
        "modelled": {n: _modelled(one) for n, one in facts.modelled.items() if n in facts.clients},
        "shifts": {n: _shift(one) for n, one in facts.shifts.items() if n in facts.clients},
        "contexts": _contexts(facts),
        **_diagnosed(facts, record.diagnosis),
        "search": json.loads(search_json(record.search)) if record.search else None,
    }


def _bounds(facts: JoiningFacts) -> Json | None:
    """Theorem 1 with the constants of its proof, and with the requested constant."""
    found, proof = global_bound(facts.record, PLAIN), global_bound(facts.record)
    if found is None or proof is None:
        return None
    plain = _bound(found)
    return {
        "proof": _bound(proof),
        "constant": {name: facts.constant * number for name, number in plain.items()},
    }


def _bound(bound: GlobalBound) -> dict[str, float]:
    return {**vars(bound), "total": bound.total}


def _picked(one: object, *names: str) -> Json:
    """The named attributes; estimates with their intervals."""
    values = {name: getattr(one, name) for name in names}
    return {n: v.as_json() if isinstance(v, Estimate) else v for n, v in values.items()}


def _modelled(one: Modelled) -> Json:
    parts = one.information
    return {"value": parts.value, **vars(parts), **_picked(one, "shift_by", "break_even")}


def _shift(one: ClientShift) -> Json:
    parts: Json = {s: vars(one.parts[s]) if s in one.parts else None for s in SOURCES}
    return {**parts, "largest": one.largest, "total_variation_at_most": one.joint}


def _contexts(facts: JoiningFacts) -> Json | None:
    """Distances of each client's contexts from the mixture's, as Gaussians; null if unknown."""
    record = facts.record
    if why_unknown(record.statistics) or adds_under_masks(record.study):
        return None
    shifts = shifts_from_mixture(context_moments(record.statistics), record.mixture)
    return {n: _context(one) for n, one in shifts.items() if n in facts.clients}


def _context(one: ContextShift) -> Json:
    bounds = {"at_least": one.total_variation.lower, "at_most": one.total_variation.upper}
    return {"kl": one.kl, "chi_squared": one.chi_squared, "total_variation": bounds}


def _diagnosed(facts: JoiningFacts, diagnosis: Diagnosis | None) -> Json:
    """What clients reported in a diagnosis; null if none was asked for."""
    if diagnosis is None:
        names = ("discrepancies", "paths", "coalitions", "models", "classifiers", "unknown")
        return dict.fromkeys(names)
    written = json.loads(diagnosis_json(diagnosis))
    about = set(facts.clients)
    discrepancies, paths = diagnosis.discrepancies, diagnosis.paths
    return {
        "discrepancies": {
            n: _picked(one, "above", "below", "gap", "is_sure")
            for n, one in discrepancies.items()
            if n in about
        },
        "paths": {n: _path(facts, one) for n, one in paths.items() if n in about},
        "coalitions": _coalitions(facts, diagnosis.coalitions),
        "models": written["models"],
        "classifiers": {n: one for n, one in written["classifiers"].items() if n in about},
        "unknown": diagnosis.unknown,
    }


def _path(facts: JoiningFacts, path: SkewPath) -> Json:
    return {
        **_picked(path, "verdict", "cannot_tell"),
        "gap_from_rows": gap_from_rows(facts, path.target),
        "points": [_point(facts, path.target, point) for point in path.points],
    }


def _point(facts: JoiningFacts, target: str, point: PathPoint) -> Json:
    return {
        **_picked(point, "alpha", "weights", "skewness", "effective_rows"),
        "shift": shift_at(facts, target, point),
        "regret_bound": regret_bound(facts, point),
        **_picked(point, "at_target", "in_base", "target_gain", "base_gain"),
    }


def _coalitions(facts: JoiningFacts, coalitions: Coalitions | None) -> Json | None:
    if coalitions is None:
        return None
    about = [one for one in coalitions.compared if set(one.members) & set(facts.clients)]
    return {
        "compared": [_coalition(one) for one in about],
        "worth_of_data": {n: e.as_json() for n, e in coalitions.worth_of_data.items()},
    }


def _coalition(one: Coalition) -> Json:
    return {
        **_picked(one, "members", "weights", "stability", "leavers", "level"),
        "gains": {name: gain.as_json() for name, gain in one.gains.items()},
    }
