"""Names, at the client, what one row or a few rows dominate, so that sums are not released."""

from collections.abc import Iterator

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.scoring.row_shares import dominated
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.score_sums_by_fold import SumByFold

LOOK = "look for a typo or a code such as 9999, or use logarithms, ranks or bounded values"
MOVE = "set the outer knots of its numbers nearer to the middle, or leave these knots out"
FEWER = "leave out waves, have fewer of them, or set knots of far values further out"


def dominated_in_all_rows(space: Workspace) -> list[str]:
    """Columns, combinations and actions because of which no sums over all rows are released."""
    if space.n_training < max(space.limits.minimum_rows, space.rows_needed):
        return []  # so few rows have no sums anyway
    try:
        shares = space.row_shares
    except RefusedError:  # impossible propensities, which were already reported
        return []
    if shares is None:
        return []
    too_much = dominated(shares, space.study, space.limits)
    found = [
        f"one row has {share:.0%} of the sum of squares of {name}, which would disclose its other "
        f"values (dominance): {remedy}"
        for (name, remedy), share, is_refused in zip(
            _columns(space), shares.by_column, too_much, strict=False
        )
        if is_refused
    ]
    if space.rests_on_few:
        found.append(f"{_few(space)}, which would disclose them (dominance): {FEWER}")
    taken = too_much[space.study.n_terms + 1 :]
    return found + [
        f"of the rows that took '{action}', one has a known propensity far from the others', which "
        "would disclose its values (dominance): look for a typo, round propensities to those that "
        "many rows share, set nuisances.clip, or let them be estimated"
        for action, is_refused in zip(space.study.actions, taken, strict=False)
        if is_refused
    ]


def dominated_in_a_fold(space: Workspace) -> list[str]:
    """Columns and combinations because of which sums by fold may be refused, if there are any.

    Not certainly: rows are dealt to folds anew in the run.
    """
    if not SumByFold.needed(space.study) or space.n_training < space.rows_needed:
        return []
    refused = "sums by fold may be refused (SumByFold, DOMINATED; the run deals rows to folds anew)"
    most = f"more than {space.limits.dominance:.0%}"
    columns = space.study_rows.dominated_by_fold.columns
    found = [
        f"in a fold, one row has {most} of the sum of squares of {name}, so {refused}: {remedy}, "
        "or use fewer folds"
        for (name, remedy), is_refused in zip(_columns(space), columns, strict=False)
        if is_refused
    ]
    if space.rests_on_few_in_a_fold:
        found.append(f"in a fold, {_few(space)}, so {refused}: {FEWER}, or use fewer folds")
    return found


def _few(space: Workspace) -> str:
    return (
        f"fewer than {space.limits.minimum_cell} rows have more than {space.limits.dominance:.0%} "
        "of some combination of the basis's terms"
    )


def _columns(space: Workspace) -> Iterator[tuple[str, str]]:
    """Each column that sums are taken of, in words, and what to do if one row dominates it."""
    terms, features = space.study.terms, space.study_rows.given.feature_names
    yield from ((f"feature '{name}'", LOOK) for name in features)
    if terms is not None:
        yield from ((f"the term '{name}'", MOVE) for name in terms.names[len(features) :])
    yield "the outcome", LOOK
