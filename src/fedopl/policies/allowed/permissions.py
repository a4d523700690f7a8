"""Permissions: actions that some groups may not get, and clients that offer only some actions."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import quoted
from fedopl.base.schema import Label
from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.allowed.conditions import Compared, Region, place_of, read_condition
from fedopl.policies.tree_columns import Column

# The client name for decisions at a client that is not named in the rules.
OTHER = "other"
MOST_RULES = 100
# At most this many combinations of rules are searched for one that leaves no action; beyond that,
# only rows can show it.
_MOST_TRIED = 100_000

Regions = Mapping[str, Region]  # by column; anything in columns that are not named
# In the standard spelling, independent of blanks and quotation marks.
Condition = Annotated[
    str, AfterValidator(lambda text: " and ".join(map(str, read_condition(text))) if text else "")
]


class Never(Checked):
    """An action that some group of people may not get."""

    action: Label = Field(description="what may not be given")
    when: Condition = Field(
        default="",
        description="for whom: comparisons of features, joined by and; default: for everybody",
    )

    @cached_property
    def conditions(self) -> tuple[Compared, ...]:
        """The comparisons of the rule, which must all hold."""
        return read_condition(self.when) if self.when else ()

    def regions(self, columns: Sequence[Column]) -> dict[str, Region]:
        """The values that the rule covers, by column; a ValueError if a column lacks them."""
        found: dict[str, Region] = {}
        for one in self.conditions:
            own = one.region(place_of(one.column, columns))
            found[one.column] = found.get(one.column, own).within(own)
        return found

    def __str__(self) -> str:
        return f"never '{self.action}'" + (f" where {self.when}" if self.when else "")


NeverRules = Annotated[tuple[Never, ...], Field(max_length=MOST_RULES)]
ByClient = dict[str, Annotated[tuple[Label, ...], Field(min_length=1)]]


class Permissions(Checked):
    """Who may get which action. Decisions obey it everywhere: at clients, in values, in exports."""

    never: NeverRules = Field(default=(), description="what may not be given to whom")
    only: ByClient = Field(
        default_factory=dict, description="for clients by name, all that can be given there"
    )

    def at(self, client: str, actions: Sequence[str]) -> "Permissions":
        """The rules at this client; actions that the client does not offer are forbidden there."""
        if client not in self.only:
            return Permissions(never=self.never)
        lacking = [action for action in actions if action not in self.only[client]]
        return Permissions(never=(*(Never(action=one) for one in lacking), *self.never))

    def limited(self, actions: Sequence[str]) -> tuple[str, ...]:
        """The actions that are forbidden for some rows or at some client."""
        closed = {action for own in self.only.values() for action in actions if action not in own}
        closed |= {rule.action for rule in self.never}
        return tuple(action for action in actions if action in closed)

    def instead_of(self, action: str, actions: Sequence[str]) -> tuple[str, ...]:
        """The actions that may be given instead of an action that is sometimes forbidden."""
        limited = self.limited(actions)
        found: list[str] = []
        for other in actions if action in limited else ():
            if other != action:
                found.append(other)
            if other not in limited:
                break
        return tuple(found)

    def checked_client(self, client: str | None) -> str:
        """The client; an OptionError if it is not given and clients differ in actions."""
        if not self.only:
            return client or OTHER
        have = f"some clients ({quoted(list(self.only))}) have actions of their own"
        if client is None:
            raise OptionError(
                f"client: {have}, so a decision depends on where it is made; say client= "
                f"(--client), '{OTHER}' for a client that is none of them"
            )
        if client != OTHER and client not in self.only:
            raise OptionError(
                f"client: {have}, and '{client}' is none of them; say '{OTHER}' if it may give all"
            )
        return client

    def check_clients(self, clients: Sequence[str]) -> None:
        """Raise a PlacedError unless all named clients take part."""
        for name in self.only:
            if name not in clients:
                message = f"there is no client '{name}'; there are {quoted(sorted(clients))}"
                raise PlacedError(f"policy.only.{name}", message, ("policy", "only", name))

    # --- rows ----------------------------------------------------------------------------------

    def forbidden(
        self, contexts: FloatArray, columns: Sequence[Column], actions: Sequence[str]
    ) -> BoolArray:  # (n_rows, n_actions)
        """Which actions each row may not get, at a client that offers every action."""
        found = np.zeros((len(contexts), len(actions)), np.bool_)
        for rule in self.never:
            holds: BoolArray = np.ones(len(contexts), np.bool_)
            for one in rule.conditions:
                holds &= one.holds(columns, contexts)
            found[:, actions.index(rule.action)] |= holds
        n_left_out = np.count_nonzero(found.all(axis=1))
        if n_left_out:
            raise DataError(
                f"permissions: no action is left for {n_left_out:,} rows; change policy.never or "
                "policy.only"
            )
        return found

    # --- before anything is asked --------------------------------------------------------------

    def check(self, columns: Sequence[Column], actions: Sequence[str]) -> None:
        """Raise a PlacedError unless all names exist and every row is left some action."""
        for rule in self.never:
            _check_actions([rule.action], actions, ("policy", "never"))
            try:
                regions = rule.regions(columns)
            except ValueError as error:
                raise PlacedError("policy.never", str(error)) from None
            if any(region.is_empty for region in regions.values()):
                message = f"'{rule.when}' holds for nobody"
                raise PlacedError("policy.never", message)
        for client, own in self.only.items():
            _check_actions(own, actions, ("policy", "only", client))
        for client in (*self.only, OTHER):
            self._check_something_is_left(client, columns, actions)

    def _check_something_is_left(
        self, client: str, columns: Sequence[Column], actions: Sequence[str]
    ) -> None:
        rules = self.at(client, actions).never
        by_action = [[one for one in rules if one.action == action] for action in actions]
        # Actions with the fewest rules first, so that most combinations are ruled out early.
        by_action.sort(key=len)
        found = next(_without_any(by_action, columns, count(1)), None)
        if found is None:
            return
        at = f" at client '{client}'" if client in self.only else ""
        where = " and ".join(dict.fromkeys(rule.when for rule in found if rule.when))
        who = f"where {where}" if where else "for anybody"
        place = ("policy", "only", client) if client in self.only else ("policy", "never")
        message = f"no action is left{at} {who}; let the rules leave everybody some action"
        raise PlacedError(".".join(place), message, place)


def _without_any(
    by_action: Sequence[Sequence[Never]],
    columns: Sequence[Column],
    tries: Iterator[int],
    regions: Regions | None = None,
) -> Iterator[list[Never]]:
    """Combinations of rules, one per action, that can hold at once and leave no action."""
    if not by_action:
        yield []
        return
    for rule in by_action[0]:
        joined = dict(regions or {})
        for column, own in rule.regions(columns).items():
            joined[column] = joined.get(column, own).within(own)
        if next(tries) > _MOST_TRIED or any(region.is_empty for region in joined.values()):
            continue
        for others in _without_any(by_action[1:], columns, tries, joined):
            yield [rule, *others]


def _check_actions(named: Sequence[str], actions: Sequence[str], place: tuple[str, ...]) -> None:
    unknown = [action for action in named if action not in actions]
    if unknown:
        message = f"{quoted(unknown)} is no action of the study; there are {quoted(actions)}"
        raise PlacedError(".".join(place), message, place)


def first_allowed(codes: IntArray, forbidden: BoolArray) -> IntArray:  # (n_rows,)
    """The decisions; where one is forbidden, the study's first allowed action."""
    rows = np.arange(len(codes))
    return np.where(forbidden[rows, codes], np.argmin(forbidden, axis=1), codes)


def largest_allowed(scores: FloatArray, forbidden: BoolArray) -> IntArray:  # (n_rows,)
    """The allowed action with the largest score; among equal ones, the first."""
    return np.asarray(np.argmax(np.where(forbidden, -np.inf, scores), axis=1))
