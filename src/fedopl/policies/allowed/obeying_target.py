"""Makes exported policies obey permissions: an action that is not allowed is never chosen."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Generic, cast

from fedopl.policies.allowed.conditions import MISSING, NOT_MISSING, Compared, place_of
from fedopl.policies.allowed.permissions import Never
from fedopl.policies.export.target import Target, Term
from fedopl.policies.tree_columns import Column, LevelColumn


def obeying(
    target: Target[Term], never: Sequence[Never], columns: Sequence[Column]
) -> Target[Term]:
    """The same language, in which actions are taken only where no rule forbids them."""
    return cast("Target[Term]", _Obeying(target, never, columns))


class _Obeying(Generic[Term]):
    """Wraps a language; only the two words that return an action differ."""

    def __init__(
        self, target: Target[Term], never: Sequence[Never], columns: Sequence[Column]
    ) -> None:
        self._target, self._columns = target, columns
        codes = {action: code for code, action in enumerate(target.inputs.actions)}
        self._always = {codes[rule.action] for rule in never if not rule.conditions}
        sometimes = [rule for rule in never if rule.conditions]
        self._forbidden: dict[int, Term] = {
            code: reduce(target.either, [self._holds(one) for one in sometimes if one.action == a])
            for a, code in codes.items()
            if code not in self._always and any(one.action == a for one in sometimes)
        }

    def __getattr__(self, word: str) -> Any:
        return getattr(self._target, word)

    def action(self, code: int) -> Term:
        """The action `code`; where it is forbidden, the first one that is allowed."""
        others = [c for c in range(len(self._target.inputs.actions)) if c != code]
        usable = [c for c in (code, *others) if c not in self._always]
        # No action after one that is never forbidden can be reached.
        last = next((n for n, c in enumerate(usable) if c not in self._forbidden), len(usable) - 1)
        taken = self._target.action(usable[last])
        for c in reversed(usable[:last]):
            taken = self._target.choice(self._forbidden[c], taken, self._target.action(c))
        return taken

    def largest(self, scores: Mapping[int, Term]) -> Term:
        """The allowed action with the largest score."""
        target = self._target
        usable = {code: score for code, score in scores.items() if code not in self._always}
        lowered = [code for code in usable if code in self._forbidden]
        names = [target.inputs.actions[code] for code in lowered]
        numbers = [target.unless(self._forbidden[code], usable[code]) for code in lowered]
        kept = target.kept("allowed", names, numbers) if lowered else []
        return target.largest({**usable, **dict(zip(lowered, kept, strict=True))})

    def _holds(self, rule: Never) -> Term:
        return reduce(self._target.both, map(self._compared, rule.conditions))

    def _compared(self, one: Compared) -> Term:
        target, place = self._target, place_of(one.column, self._columns)
        column = place.column
        if one.sign == MISSING:
            return target.is_missing(one.column)
        if one.sign == NOT_MISSING:
            return target.negated(target.is_missing(one.column))
        if isinstance(column, LevelColumn):
            holds = [target.is_level(one.column, level) for level in one.values]
        else:
            holds = [self._of_number(one)]
        holds += [target.is_missing(one.column)] if place.is_marked else []
        return reduce(target.either, holds)

    def _of_number(self, one: Compared) -> Term:
        target, number, cut = self._target, self._target.number(one.column), one.number
        if one.sign in ("<", ">="):
            least = target.at_least(number, cut)
            return target.negated(least) if one.sign == "<" else least
        most = target.at_most(number, cut)
        if one.sign == "=":
            return target.both(most, target.at_least(number, cut))
        return target.negated(most) if one.sign == ">" else most
