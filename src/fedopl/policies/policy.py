"""What a policy of any kind offers, what it is about, and how it is saved."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import FloatArray, IntArray, check_finite, float_array
from fedopl.base.errors import DataError
from fedopl.base.files import write_atomically
from fedopl.base.labels import quoted
from fedopl.base.schema import Encoding
from fedopl.policies.export.export_file import export_rule
from fedopl.policies.export.target import Inputs, Target, Term
from fedopl.policies.terms import Terms

FORMAT, VERSION = "fedopl-policy", 1


class Domain(Protocol):
    """What turns plain numbers into a policy; every study is one."""

    @property
    def actions(self) -> tuple[str, ...]:
        """What a policy decides between."""

    @property
    def features(self) -> tuple[str, ...]:
        """What a policy looks at."""

    @property
    def terms(self) -> Terms | None:
        """What of features policies are linear in, if not these themselves."""

    @property
    def encoding(self) -> Encoding | None:
        """How a table becomes features, where tables are read."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """How many units each hidden layer of a network has; none where there is no network."""


class Policy(ABC):
    """A policy of any kind; whoever holds one asks it, and never which kind it is."""

    kind: ClassVar[str]
    message_field: ClassVar[str]  # which field of a message carries policies of this kind
    message_axes: ClassVar[tuple[str, ...]]  # what its axes count: policies, then their numbers
    explained_by: ClassVar[str]  # what the report shows of it: "weights", a "tree", or "profiles"
    reads_columns: ClassVar[bool]  # whether it means columns of a table rather than features

    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    encoding: Encoding | None  # how a table becomes features, where the study reads tables
    terms: Terms | None = None  # what it is linear in, if that is not features themselves

    @abstractmethod
    def decide(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action to take in each context."""

    def names(self, contexts: ArrayLike) -> NDArray[np.str_]:  # (n_rows,)
        """The name of the action to take in each context."""
        return np.array(self.action_names)[self.decide(contexts)]

    @abstractmethod
    def numbers(self) -> FloatArray:
        """The policy as a message carries it; equal policies have equal numbers."""

    def numbers_for(self, _domain: Domain) -> FloatArray:
        """The same among policies of this domain."""
        return self.numbers()

    @classmethod
    @abstractmethod
    def numbers_shape(cls, domain: Domain) -> tuple[int, ...]:
        """The shape of these numbers, which is the same for all policies of a study."""

    @classmethod
    @abstractmethod
    def from_numbers(cls, numbers: FloatArray, domain: Domain) -> Self:
        """The policy that a message carried; a ValueError if the numbers are none."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """What is saved of it beside actions and features."""

    @classmethod
    @abstractmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The policy that was saved; a ValueError, KeyError or TypeError if it is none."""

    @abstractmethod
    def written_in(self, target: Target[Term]) -> Term:
        """The action to take, in another language: what `decide` says, in the words of `target`."""

    def export(
        self,
        path: str | Path,
        to: str | None = None,
        *,
        column: str = "action",
        table: str = "rows",
        columns: Mapping[str, str] | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Path:
        """Write the policy for another program, which then decides as `decide` does.

        Args:
            path: a file to write, whole or not at all.
            to: "sql", "python", "excel" or "onnx"; by the file's ending if not said.
            column: what the action is called in what comes out.
            table: what the table is called in SQL.
            columns: what columns are called there, by the policy's name, where it differs.
            labels: by the policy's name of a column, the policy's label for each label there.

        """
        inputs = Inputs(
            encoding=self.encoding or Encoding(numeric=self.feature_names),
            actions=self.action_names,
            column=column,
            table=table,
            called=columns or {},
            labels=labels or {},
        )
        return export_rule(self.written_in, inputs, self.decide, Path(path), to)

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON, whole or not at all; every float reads back the same."""
        write_atomically(Path(path), policy_json(self).encode())


def policy_json(policy: Policy) -> str:
    """The policy as JSON text, the same bytes for the same policy."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "kind": policy.kind,
        "actions": list(policy.action_names),
        "features": list(policy.feature_names),
        **policy.content(),
    }
    if policy.encoding:
        content["encoding"] = policy.encoding.model_dump(mode="json")
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def checked_contexts(contexts: Any, feature_names: tuple[str, ...]) -> FloatArray:
    """The contexts as numbers; the columns of a frame are put in the policy's order."""
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
