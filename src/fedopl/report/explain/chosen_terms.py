"""Explains which terms of a basis the policy uses, and how the other terms did."""

import math
from typing import Any

from fedopl.policies.basis import Basis, Threshold
from fedopl.report.parts import Heading, Part, Table, Text
from fedopl.report.words.numbers import count, listed, told_apart
from fedopl.results.record import Record
from fedopl.results.sums.term_choice import TermChoice

_MOST_NAMED = 12  # pairs, or thresholds
# Keyed by whether the policy also has a network.
_WHAT_CHOSE = {False: "The policy", True: "The linear part of the policy"}


def choice_parts(record: Record | None) -> tuple[Part, ...]:
    """The candidate terms, their out-of-fold losses, and the terms that were chosen."""
    choice = term_choice_of(record)
    if record is None or choice is None:
        return ()
    head, family = Heading("How the terms were chosen"), choice.family
    screened = _screened(record)
    if family is None:
        why = (
            "No client reported sums by fold, so no sets of terms could be compared: the policy is "
        )
        return (head, Text(f"{why}linear in the features as they are."), *screened)
    taken = _family_words(record, family)
    if len(choice.losses) == 1:
        why = "only how much their weights are shrunk was chosen, by the loss out of fold"
        return (head, Text(f"The study set the policy's terms, {taken}; {why}."), *screened)
    said = (
        f"{_WHAT_CHOSE[bool(record.study.hidden)]} could use {len(choice.losses)} sets of terms, "
        f"and took {taken}. A richer set is taken if its loss is less by more than a standard "
        "error over folds. The loss is the squared error of predicted scores with each fold of "
        "training rows left out in turn, and follows from the clients' sums."
    )
    return (head, Text(said), *screened, _table(record, choice))


def _screened(record: Record) -> tuple[Text, ...]:
    """What the study screened for before terms were agreed, and what it found."""
    basis = _found_in_all(record)
    if basis is None:
        return ()
    return (*_screened_pairs(record, basis), *_screened_thresholds(record, basis))


def _found_in_all(record: Record | None) -> Basis | None:
    """The basis with the terms that the policy may use: those found with all training rows."""
    basis = record.study.basis if record else None
    return None if basis is None else basis.of_screening(-1)


def _used_rows(record: Record) -> str:
    """Which rows had a say in what was found."""
    if len(record.study.left_out) > 1:
        return (
            "Clients also looked without each fold. The policy by which a fold is valued uses only "
            "what was found without it."
        )
    return "Only training rows were used for this, not the rows that policies are valued on."


def _screened_thresholds(record: Record, basis: Basis) -> tuple[Text, ...]:
    """Where outcomes were found to change sharply; there, a few bends may not be enough."""
    if basis.found_thresholds is None:
        return ()
    looked = "Clients looked for values where outcomes change more sharply than bends can describe"
    if not basis.found_thresholds:
        return (Text(f"{looked}; none was found."),)
    named = [_in_words(one) for one in basis.found_thresholds[:_MOST_NAMED]]
    more = len(basis.found_thresholds) - len(named)
    found = "; ".join([*named, *([f"{count(more)} more"] if more else [])])
    first = ", the strongest first: " if len(named) > 1 else " "
    said = f"{looked}, and found{first}{found}. Policies may jump there. {_used_rows(record)}"
    return (Text(said),)


def _in_words(threshold: Threshold) -> str:
    """One number above its threshold, or two that both are."""
    both = "both " if len(threshold) > 1 else ""
    return both + " and ".join(f"{name} > {cut:g}" for name, cut in threshold)


def _screened_pairs(record: Record, basis: Basis) -> tuple[Text, ...]:
    """How many pairs of features were screened, and which pairs became products."""
    if basis.found_pairs is None:
        return ()
    looked = f"Of {count(math.comb(record.study.n_features, 2))} pairs of features"
    if not basis.found_pairs:
        return (Text(f"{looked}, no pair was found to act together, so no product was added."),)
    named = [f"{first} × {second}" for first, second in basis.found_pairs]
    were, order = ("was", "") if len(named) == 1 else ("were", ", the strongest first")
    said = (
        f"{looked}, {count(len(named))} {were} found to predict outcomes better together than "
        f"apart{order}: {listed(named, most=_MOST_NAMED)}. Products of these could be used. "
        f"{_used_rows(record)}"
    )
    return (Text(said),)


def _table(record: Record, choice: TermChoice) -> Table:
    terms = record.study.terms
    sizes = {family: len(terms.usable(n)) for family, n in terms.sizes.items()} if terms else {}
    losses = list(choice.losses.values())
    beyond_first = [loss - losses[0] for loss in losses]
    rows = [
        (
            _family_words(record, family),
            count(sizes[family]),
            text,
            "taken" if family == choice.family else "",
        )
        for family, text in zip(choice.losses, told_apart(beyond_first), strict=True)
    ]
    return Table(
        caption="Loss out of fold, less that of the first line: less is better",
        headers=("Terms", "How many", "Loss", "Taken"),
        rows=tuple(rows),
        text_columns=(3,),
        long_names=True,
    )


def _family_words(record: Record, family: str) -> str:
    """The terms in which a policy of this family is linear, in words."""
    if family == "linear":
        return "features as they are"
    basis = _found_in_all(record)
    jumps = ["jumps at thresholds"] if basis and basis.found_thresholds else []
    if family == "thresholds":
        return listed(["features as they are", *jumps])
    further = []
    if family != "hinges" and basis and basis.multiplied:
        further.append("products of two")
    if family in ("steps", "waves"):
        further.append("soft steps")
    if family == "waves":
        further.append("waves")
    return listed(["features that bend at their knots", *further, *jumps])


def choice_as_json(record: Record | None) -> dict[str, Any]:
    """The chosen family and the losses of all families, if there was a choice."""
    choice = term_choice_of(record)
    if choice is None:
        return {}
    basis = _found_in_all(record)
    found = basis.found_pairs if basis else None
    jumps = basis.found_thresholds if basis else None
    screened: dict[str, Any] = {}
    if found is not None:
        screened["found_pairs"] = [list(pair) for pair in found]
    if jumps is not None:
        screened["found_thresholds"] = [[list(cut) for cut in one] for one in jumps]
    told = {"taken": choice.family or "linear", "losses": dict(choice.losses), **screened}
    return {"terms": told}


def term_choice_of(record: Record | None) -> TermChoice | None:
    """The choice of terms; None if the policy's terms were not chosen from a basis."""
    if record is None or record.study.basis is None or not record.study.policy.starts_exactly:
        return None
    return record.statistics.choice
