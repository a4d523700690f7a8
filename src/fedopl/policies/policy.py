"""The interface of all policies, the domain they decide in, and how they are saved."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, check_finite, float_array
from fedopl.base.errors import DataError, PolicyError
from fedopl.base.files import write_atomically
from fedopl.base.labels import quoted
from fedopl.base.schema import Encoding
from fedopl.policies.allowed.conditions import MISSING, NOT_MISSING, Compared, place_of
from fedopl.policies.allowed.permissions import Never, Permissions, first_allowed
from fedopl.policies.export.export_file import export_rule
from fedopl.policies.export.target import Inputs, Target, Term
from fedopl.policies.terms import Terms
from fedopl.policies.tree_columns import Column, LevelColumn, tree_columns

FORMAT, VERSION = "fedopl-policy", 1
# The format of a policy with permissions: an older reader must not decide without them.
VERSION_WITH_PERMISSIONS = 2


class Domain(Protocol):
    """What is needed to turn plain numbers into a policy; every study is a domain."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions that a policy decides between."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features that a policy reads."""

    @property
    def terms(self) -> Terms | None:
        """The terms in which policies are linear, if not the features themselves."""

    @property
    def encoding(self) -> Encoding | None:
        """How a table becomes features, if tables are read."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """The number of units of each hidden layer; empty if there is no network."""

    @property
    def is_cautious(self) -> bool:
        """Whether linear policies may also have doubts about actions."""

    @property
    def permissions(self) -> Permissions | None:
        """Who may get which action; None if everybody may get every action."""


class Policy(ABC):
    """A policy of any kind; callers use its methods and never ask which kind it is."""

    kind: ClassVar[str]
    message_field: ClassVar[str]  # which field of a message carries policies of this kind
    message_axes: ClassVar[tuple[str, ...]]  # what its axes count: policies, then their numbers
    explained_by: ClassVar[str]  # what the report shows of it: "weights", a "tree", or "profiles"
    reads_columns: ClassVar[bool]  # whether it means columns of a table rather than features

    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    encoding: Encoding | None  # how a table becomes features, where the study reads tables
    terms: Terms | None = None  # what it is linear in, if that is not features themselves
    permissions: Permissions | None = None  # who may get what; all may get everything if None

    def decide(self, contexts: ArrayLike, *, client: str | None = None) -> IntArray:  # (n_rows,)
        """The code of the action to take in each context, always an allowed one.

        `client` names the client if available actions differ between clients; "other" is any client
        that is not named in the rules.
        """
        if self.permissions is None:
            return self.preferred(contexts)
        rows = checked_contexts(contexts, self.feature_names)
        return self.best_allowed(rows, self.forbidden(rows, client=client))

    @abstractmethod
    def preferred(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action to take in each context, if all actions are allowed."""

    def best_allowed(self, contexts: FloatArray, forbidden: BoolArray) -> IntArray:  # (n_rows,)
        """The preferred action; where it is forbidden, the study's first allowed action."""
        return first_allowed(self.preferred(contexts), forbidden)

    def forbidden(
        self, contexts: ArrayLike, *, client: str | None = None
    ) -> BoolArray:  # (n_rows, n_actions)
        """Which actions are forbidden in each context."""
        rows = checked_contexts(contexts, self.feature_names)
        if self.permissions is None:
            return np.zeros((len(rows), len(self.action_names)), np.bool_)
        here = self.permissions.at(self.permissions.checked_client(client), self.action_names)
        columns = tree_columns(self.feature_names, self.encoding)
        return here.forbidden(rows, columns, self.action_names)

    def worth(self, contexts: ArrayLike) -> FloatArray:  # noqa: ARG002  (n_rows, n_actions)
        """The policy's estimate of each action's worth in each context, NaN if it has none.

        In the unit of the outcome, where more is always better. Forbidden actions have an estimate
        as well.
        """
        raise PolicyError(f"a {self.kind} policy does not say what actions are worth")

    def at(self, client: str) -> Self:
        """The policy as it decides at this client of its study."""
        if self.permissions is None:
            return self
        here = self.permissions.at(client, self.action_names)
        return cast("Self", replace(cast("Any", self), permissions=here))

    def names(
        self, contexts: ArrayLike, *, client: str | None = None
    ) -> NDArray[np.str_]:  # (n_rows,)
        """The name of the action to take in each context."""
        return np.array(self.action_names)[self.decide(contexts, client=client)]

    @abstractmethod
    def numbers(self) -> FloatArray:
        """The policy as a message carries it; equal policies have equal numbers."""

    def numbers_for(self, _domain: Domain) -> FloatArray:
        """The numbers of this policy among policies of this domain."""
        return self.numbers()

    @classmethod
    @abstractmethod
    def numbers_shape(cls, domain: Domain) -> tuple[int, ...]:
        """The shape of these numbers, which is the same for all policies of a study."""

    @classmethod
    @abstractmethod
    def from_numbers(cls, numbers: FloatArray, domain: Domain) -> Self:
        """The policy that a message carried; a ValueError if the numbers are invalid."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """The saved content, besides actions and features."""

    @classmethod
    @abstractmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The saved policy; a ValueError, KeyError or TypeError if the content is invalid."""

    @abstractmethod
    def written_in(self, target: Target[Term]) -> Term:
        """The action that `preferred` returns, written in another language."""

    def export(
        self,
        path: str | Path,
        to: str | None = None,
        *,
        column: str = "action",
        table: str = "rows",
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        client: str | None = None,
    ) -> Path:
        """Write the policy for another program, which then decides as `decide` does.

        Args:
            path: a file to write, whole or not at all.
            to: "sql", "python", "excel" or "onnx"; by the file's ending if not said.
            column: the name of the action in the output.
            table: the name of the table in SQL.
            columns: by the policy's name of a column, its name there, if they differ.
            labels: by the policy's name of a column, the policy's label for each label there.
            client: where decisions are made, if available actions differ between clients.

        """
        here = self.at(self.permissions.checked_client(client)) if self.permissions else self
        inputs = Inputs(
            encoding=self.encoding or Encoding(numeric=self.feature_names),
            actions=self.action_names,
            column=column,
            table=table,
            called=columns or {},
            labels=labels or {},
            rules=tuple(map(str, here.permissions.never)) if here.permissions else (),
        )
        return export_rule(here.obeyed_in, inputs, here.decide, Path(path), to)

    def obeyed_in(self, target: Target[Term]) -> Term:
        """The action that `decide` returns, written in another language."""
        if self.permissions is None:
            return self.written_in(target)
        columns = tree_columns(self.feature_names, self.encoding)
        obeying = cast("Target[Term]", _Obeying(target, self.permissions.never, columns))
        return self.written_in(obeying)

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON, whole or not at all; every float reads back the same."""
        write_atomically(Path(path), policy_json(self).encode())


def policy_json(policy: Policy) -> str:
    """The policy as JSON text, the same bytes for the same policy."""
    content = {
        "format": FORMAT,
        "version": VERSION_WITH_PERMISSIONS if policy.permissions else VERSION,
        "kind": policy.kind,
        "actions": list(policy.action_names),
        "features": list(policy.feature_names),
        **policy.content(),
    }
    if policy.permissions:
        content["permissions"] = policy.permissions.model_dump(mode="json")
    if policy.encoding:
        content["encoding"] = policy.encoding.model_dump(mode="json")
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def checked_contexts(contexts: Any, feature_names: tuple[str, ...]) -> FloatArray:
    """The contexts as numbers; the columns of a data frame are put in the policy's order."""
    if hasattr(contexts, "columns"):
        missing = [name for name in feature_names if name not in list(contexts.columns)]
        if missing:
            raise DataError(f"contexts: the policy needs columns {quoted(missing)}")
        contexts = contexts[list(feature_names)]
    array = float_array(contexts, "contexts", ndim=2)
    if array.shape[1] != len(feature_names):
        raise DataError(
            f"contexts: the policy was learned on {len(feature_names)} features "
            f"({quoted(feature_names)}), came {array.shape[1]}"
        )
    check_finite(array, "contexts", feature_names)
    return array


class _Obeying(Generic[Term]):
    """The same language, in which actions are taken only where no rule forbids them.

    Only the two words that return an action differ.
    """

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


# A candidate goes by its name, as it may be a rule that only clients can apply.
Version = Policy | str


class ByFold(tuple[Version, ...]):
    """One policy for each fold of the rows, in their order, learned or chosen without it.

    It is what is valued where values are cross-fitted, each row by the policy of its fold. It
    decides for no new row, which has no fold.
    """

    __slots__ = ()

    @property
    def policies(self) -> list[Policy]:
        """Those that are not known by a name only."""
        return [one for one in self if isinstance(one, Policy)]


def versions_of(
    each: Iterable[Version | ByFold], n_versions: int, known: Mapping[str, Policy]
) -> list[Sequence[Version]]:
    """As many versions of each policy; all the same if it is not by fold. Some names are known."""
    versions = [one if isinstance(one, ByFold) else [one] * n_versions for one in each]
    return [
        [known.get(one, one) if isinstance(one, str) else one for one in own] for own in versions
    ]
