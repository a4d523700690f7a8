"""How far clients lie apart: a lower bound for contexts, measured values and upper bounds."""

import math

from fedopl.analysis.modelled_gains import largest_score
from fedopl.report.joining.advising import folded
from fedopl.report.joining.context import JoiningFacts
from fedopl.report.parts import Part, Table, Text
from fedopl.report.words.numbers import Span, decimal
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.diagnosis import Classifier, Diagnosis

NOT_REPORTED = "not reported"


def distances(facts: JoiningFacts) -> tuple[Part, ...]:
    """The table of distances; empty if clients were not asked."""
    diagnosis = facts.record.diagnosis
    if diagnosis is None:
        return ()
    shown = {title: cells for title, cells in _columns(facts, diagnosis).items() if cells}
    clients = [name for name in facts.clients if any(name in cells for cells in shown.values())]
    if not clients:
        return ()
    unit = OutcomeWords.of(facts.record.study).name
    table = Table(
        caption=f"How far apart: discrepancies in {unit} per decision with 95 % intervals",
        headers=("Client", *shown),
        rows=tuple(
            (name, *(cells.get(name, NOT_REPORTED) for cells in shown.values())) for name in clients
        ),
    )
    return (Text(_about_distances(facts, list(shown)), quiet=True), folded(table))


def _columns(facts: JoiningFacts, diagnosis: Diagnosis) -> dict[str, dict[str, str]]:
    """What is known about each client, by column title."""
    spans = {name: Span.of(one.gap) for name, one in diagnosis.discrepancies.items()}
    return {
        "Total variation of contexts, at least": {
            name: _lower_bound(one) for name, one in diagnosis.classifiers.items()
        },
        "Discrepancy": {n: f"{span.number} ({span.interval})" for n, span in spans.items()},
        "Largest score × total variation (U·TV), at most": {
            name: decimal(bound) for name, bound in _by_theorem(facts).items()
        },
    }


def _by_theorem(facts: JoiningFacts) -> dict[str, float]:
    """U·TV, which bounds the discrepancy, for the clients whose TV is known."""
    largest = largest_score(facts.record.study)
    if largest is None:
        return {}
    return {n: largest * one.joint for n, one in facts.shifts.items() if one.joint is not None}


def _lower_bound(classifier: Classifier) -> str:
    bound, error = classifier.total_variation, classifier.standard_error
    if bound is None or error is None or math.isnan(bound):
        return NOT_REPORTED
    return f"{decimal(max(bound, 0.0), 2)} ± {decimal(error, 2)}"


def _about_distances(facts: JoiningFacts, titles: list[str]) -> str:
    said, evaluation = [], facts.record.study.evaluation
    by_fold = " without each fold" if evaluation.is_cross_fitted else ""
    if any("contexts" in title for title in titles):
        said.append(
            "A classifier that separates a client's contexts from the others' gives a lower "
            "bound on how far apart they are, with its standard error; 0 is the same, 1 is "
            "entirely apart."
        )
    if "Discrepancy" in titles:
        said.append(
            "The discrepancy is how much the values of policies at a client differ from "
            f"their values in the mixture. It is measured on {evaluation.rows_valued}, at two "
            f"policies learned to show it{by_fold}. It is how much regret can suffer from shift, "
            "as far as these policies show. An estimate below 0 counts as none."
        )
    if ratios := _ratios(facts):
        ends = (min(ratios), max(ratios))
        least, most = (decimal(ratio, 0 if ratio >= 10 else 1) for ratio in ends)
        times = least if least == most else f"{least} to {most}"
        said.append(
            f"U·TV, which Theorem 2 uses in its place, is {times} times as large: bounds by "
            "total variation include every difference, also those that no decision depends "
            "on."
        )
    return " ".join(said)


def _ratios(facts: JoiningFacts) -> list[float]:
    """U·TV over the measured discrepancy, if both are known and the discrepancy is not tiny."""
    found = facts.record.diagnosis.discrepancies if facts.record.diagnosis else {}
    return [
        bound / found[name].regret_gap
        for name, bound in _by_theorem(facts).items()
        if name in facts.clients and name in found and found[name].is_sure
    ]
