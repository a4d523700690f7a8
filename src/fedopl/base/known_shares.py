"""Known propensities as a user states them: names of columns, or the probabilities of a trial.

One number is the probability of every action. A table gives a column, or a number, for each action.
If a trial drew actions within strata, `stratum` names the column of strata. `shares` then gives the
numbers of each stratum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedopl.base.labels import label_text, quoted

# Shares are often rounded, as 0.33 for a third. A total within this distance of 1 is scaled to 1.
ROUNDED = 0.02

Chances = float | dict[str, float]  # one probability for every action, or one by action


@dataclass(frozen=True)
class Strata:
    """The probabilities of actions in each stratum of a trial."""

    stratum: str  # the column of strata
    shares: dict[str, Chances]  # by stratum


# A column; a probability; columns by action; probabilities by action; or probabilities by stratum.
Stated = str | float | dict[str, str] | dict[str, float] | Strata


def _number(given: object, of: str = "") -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise ValueError(f"expected a probability from 0 to 1{of}, came {given!r}")
    return float(given)


def as_chances(given: object, of: str = "") -> Chances:
    """One probability for all actions, or one for each; refused if it is neither."""
    if not isinstance(given, Mapping):
        return _number(given, of)
    named = {label_text(action): share for action, share in given.items()}
    return {action: _number(share, f"{of} of '{action}'") for action, share in named.items()}


def as_stated(given: object) -> Stated:
    """The stated propensities, with labels as text; refused if they have none of these forms."""
    if isinstance(given, Strata) or (isinstance(given, str) and given):
        return given
    if not isinstance(given, Mapping):
        return _number(given)
    shares = given.get("shares")
    if isinstance(shares, Mapping) and "stratum" in given:
        column, *unknown = given["stratum"], *(set(given) - {"stratum", "shares"})
        if unknown or not isinstance(column, str) or not shares:
            raise ValueError("expected the name of a column as stratum, shares by stratum, no more")
        named = {label_text(name): own for name, own in shares.items()}
        return Strata(
            column, {s: as_chances(own, f" in stratum '{s}'") for s, own in named.items()}
        )
    columns = {label_text(action): own for action, own in given.items() if isinstance(own, str)}
    if not columns:
        return as_chances(given)
    if len(columns) < len(given):
        raise ValueError("name a column for each action, or a number for each, not some of both")
    return columns


def columns_in(propensity: Stated | None, actions: Sequence[str]) -> tuple[str, ...]:
    """The columns that hold propensities: none, the logged action's, or one for each action."""
    if isinstance(propensity, str):
        return (propensity,)
    if isinstance(propensity, dict):
        return tuple(own for a in actions if isinstance(own := propensity[a], str))
    return ()


def stated_shares(
    propensity: Stated | None, actions: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """Each action's probability, by stratum; empty if columns hold the propensities.

    Without strata, all rows form one stratum with an empty name.
    """
    if isinstance(propensity, Strata):
        return {s: in_full(own, actions, s) for s, own in propensity.shares.items()}
    if propensity is None or columns_in(propensity, actions):
        return {}
    return {"": in_full(as_chances(propensity), actions)}


def in_full(shares: Chances, actions: Sequence[str], stratum: str = "") -> tuple[float, ...]:
    """The probability of each action in order, adding up to 1; refused if they cannot."""
    where = f" in stratum '{stratum}'" if stratum else ""
    if isinstance(shares, dict) and set(shares) != set(actions):
        message = (
            f"say one for each of {quoted(tuple(actions))}{where}, came {quoted(tuple(shares))}"
        )
        raise ValueError(message)
    given = [shares[a] if isinstance(shares, dict) else shares for a in actions]
    total = sum(given)
    if abs(total - 1) > ROUNDED:
        each = f"{given[0]:g} for each of {len(given)} actions adds"
        came = "they add" if isinstance(shares, dict) else each
        message = (
            f"{came} up to {total:.4g}{where}, expected 1; give the probability of each action, "
            "not that of treatment"
        )
        raise ValueError(message)
    return tuple(share / total for share in given)
