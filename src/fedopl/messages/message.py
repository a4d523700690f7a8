"""The base classes of messages, the axes of their arrays, and how answers combine.

A field is a whole number, a number, a member of a closed list, or an array whose axes are named
here. No axis is counted in rows, so no message can hold a row. Once released, a message never
changes its fields: it gets a successor with a new code, and `VERSION` goes up.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Generic,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import numpy as np

from fedopl.base.arrays import FloatArray, largest_size

if TYPE_CHECKING:  # scoring arrays needs splits of rows, and no pydantic
    from fedopl.study.study import Study

VERSION = 3  # since sums are exact, and cells without a bound on what is hidden
# No number in a query is larger: honest ones never are, and sums with larger ones could overflow.
LARGEST_ASKED = 1e15
Array = FloatArray
MessageClass = TypeVar("MessageClass")


class Axis(enum.Enum):
    """What an array's axis counts."""

    ACTIONS = "actions"
    PARAMETERS = "parameters"  # features and an intercept
    TERMS = "terms"  # features, or the terms of a basis, and an intercept
    REGRESSION = "regression"  # these, and a reward
    FEATURES = "features"  # each action's own terms and an intercept
    FOLDS = "folds"
    MODELS = (
        "models"  # without each fold, and of all of them; with a basis, for each family of terms
    )
    GRAMS = "grams"  # one for each action, or one that serves all
    PAIRS = "pairs"
    LINEAR_POLICIES = "linear policies"
    LINEAR_NUMBERS = "linear numbers"  # terms and an intercept; with caution, doubts about them
    PAIRWISE_POLICIES = "pairwise policies"
    TREES = "trees"
    TREE_NODES = "tree nodes"  # questions and leaves, padded
    NODE_NUMBERS = "node numbers"  # column, cut, and where yes and no lead
    NEURAL_POLICIES = "neural policies"
    NEURAL_NUMBERS = "neural numbers"  # of the linear part and of all layers
    NETWORK_NUMBERS = "network numbers"  # weights and biases of all layers
    RULES = "rules"
    CUTS = "cuts"
    BINS = "bins"  # below, between and above the cuts
    CHANCE_BINS = "chance bins"  # between the public `CHANCE_CUTS`
    COLUMNS = "columns"  # that a tree may ask about
    CUT_COLUMNS = "cut columns"  # those whose thresholds are not agreed yet
    FINE_CUTS = "fine cuts"
    FINE_BINS = "fine bins"  # below, between and above the fine cuts
    THRESHOLDS = "thresholds"  # of all columns, one behind the other
    VERSIONS = "versions"  # without each fold, if values are cross-fitted; then, of all rows
    OPEN_NODES = (
        "open nodes"  # of a tree that is not finished; of its versions, one after the other
    )
    CELLS = "cells"  # of every two columns' bins, one table behind the other
    FIT_NUMBERS = "fit numbers"  # what is told of how well models fit for an action
    PRODUCTS_TOLD = "products told"  # of an action, the strongest first
    INTERACTION_NUMBERS = "interaction numbers"  # which features, and how strong
    CELL_NUMBERS = "cell numbers"  # rows, weight, by action sums, what they rest on, doubts
    LEAVES = "everybody or leaves"  # of the tree that is named, if one is
    LEAVES_NODES = "nodes of the leaves"  # as `TREE_NODES`, or nothing
    QUESTIONS = "questions"  # of a tree, each before those below it; of its versions, likewise
    NEAR_CUTS = "near cuts"  # thresholds close to a question's own, and that one
    NEAR_BINS = "near bins"  # below, between and above them
    CLIENTS = "clients"  # whose models are compared
    REPEATS = "repeats"  # a model without each part of the rows, and one from all of them
    TARGETS = "targets"  # clients whose contexts are distinguished from all others'
    MOMENTS = "moments"  # of the largest score of a row, then of each action's
    FEATURE_PAIRS = "feature pairs"  # every two features
    FOUND_PAIRS = "found pairs"  # those of them that are taken
    JUMPS_TOLD = "jumps told"  # of an action, the strongest first
    JUMP_NUMBERS = "jump numbers"  # which numbers, where, and how strong
    FOUND_THRESHOLDS = "found thresholds"
    FOUND_TERMS = "found terms"  # the pairs that are taken, then the thresholds
    CORNER_NUMBERS = "corner numbers"  # which numbers, and where
    TWO = "two"  # features of a pair
    NUMBERS = "numbers"  # features whose ranges are measured, in the order of their names
    PRICES = "prices"  # of a unit that is spent
    # All candidates together; or policies at prices, every action for everybody and what was done;
    # or the candidates that are valued in leaves.
    PARTS = "parts"
    OTHERS_VERSIONS = "others' versions"  # as `VERSIONS`, or nothing
    OTHERS = "others"  # of what all others learned: actions, or one line of candidates; or nothing
    OTHERS_NUMBERS = "others' numbers"  # linear numbers, leaves or candidates; or nothing
    OTHERS_TERMS = "others' terms"  # as `TERMS`, or nothing
    OTHERS_NODES = "others' nodes"  # as `TREE_NODES`, or nothing
    STRENGTHS = "strengths"  # the public ones by which a personal policy may follow its own rows
    PARTIES = "parties"  # clients whose answers are added up under masks
    SESSION_KEYS = "session keys"
    KEY_WORDS = "key words"  # of 64 bits
    SIGNATURE_WORDS = "signature words"
    HOLDERS = "holders"  # of shares of a client's secrets: it and those it has masks with
    MASK_SECRETS = "mask secrets"  # two for each sum
    SUMS = "sums"  # under masks, where clients may be lacking
    SEALED_WORDS = "sealed words"  # of a share, or a seed, under seal
    MASKED = "masked numbers"  # all sums of an answer, one behind the other
    TARGET_VALUES = "target values"  # of the policy, then of every action
    BALANCED = "balanced terms"  # features, then their squares
    UNITS = "units"  # as `PARAMETERS`, or nothing
    SLOPES = "slopes"  # as `BALANCED`, or nothing
    REGIONS = "regions"  # in which a target may have people whom nobody has seen
    # All policies asked about, the logging policy and the local policy; or what is told of a part.
    CANDIDATES = "candidates"
    ASKED_BY_FOLD = "asked by fold"  # candidates, if each may have a version for each fold
    OWN_FOLDS = "own folds"  # as `FOLDS`, or nothing


def are_symmetric(axes: tuple[Axis, ...]) -> bool:
    """Whether arrays of these axes hold symmetric matrices: their last two axes are the same."""
    return len(axes) > 1 and axes[-1] is axes[-2]


class RowSplit(enum.Enum):
    """Which of its rows a client should use."""

    TRAINING = 1
    EVALUATION = 2
    FITTING = 3  # training rows but the fold that is kept back
    VALIDATION = 4  # the fold of the training rows that is kept back
    EACH_FOLD = 5  # training rows, which are all, each fold by versions that go without it
    ALL = 6  # held-out ones included, to value what was not learned from any of them


def kept_back(without: int | None) -> int:
    """The fold to choose on what was fitted to others: the first that is not left out."""
    return 1 if without == 0 else 0


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
def message(declared: type[MessageClass]) -> type[MessageClass]:
    """Turn a class that declares a message's fields into a frozen record."""
    return dataclass(frozen=True, eq=False, kw_only=True)(declared)


@message
class Message:
    """The fields that every message has; both are set when it is sent."""

    code: ClassVar[int]
    study: bytes = b""  # the digest of the study
    exchange: int = 0  # which exchange of the run this belongs to

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        super().__init_subclass__()
        if code is not None:
            cls.code = code


AnswerType = TypeVar("AnswerType", bound=Message)


def own_fields(kind: type[Message]) -> list[str]:
    """The fields of messages of this kind, without those that every message has."""
    own = (field.name for field in fields(kind))
    return [name for name in own if name not in Message.__dataclass_fields__]


def stamped(message: AnswerType, study: bytes, exchange: int) -> AnswerType:
    """The message as it is sent, with the digest of its study and its exchange."""
    sent = object.__new__(type(message))  # `replace` takes several times as long
    vars(sent).update(vars(message), study=study, exchange=exchange)
    return sent


def stack_of(answers: Sequence[AnswerType]) -> AnswerType | None:
    """All of them in one message, one more axis first; None if their arrays differ in shape."""
    first = answers[0]
    stacked = object.__new__(type(first))
    for name, held in vars(first).items():
        if isinstance(held, np.ndarray):
            every = [getattr(answer, name) for answer in answers]
            if any(array.shape != held.shape for array in every):
                return None
            vars(stacked)[name] = np.stack(every)
    return stacked


_AXES: dict[type[Message], dict[str, tuple[Axis, ...]]] = {}


def array_axes(kind: type[Message]) -> dict[str, tuple[Axis, ...]]:
    """The axes of each array in messages of this kind, by field."""
    if kind not in _AXES:
        hints = get_type_hints(kind, include_extras=True)
        said = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
        _AXES[kind] = {name: axes for name, axes in said.items() if isinstance(axes, tuple)}
    return _AXES[kind]


class Asked(enum.Enum):
    """How the server uses the answers to a query."""

    EACH = "each client's own answer"
    TOTAL = "the total over clients"


@message
class Query(Message, Generic[AnswerType]):
    """A question of the server, and all that both sides agree on about it.

    A subclass declares in its header, as in `class SumPairs(Query[PairSums], code=5, ...)`: the
    answer it wants, whether from each client or in total, and which of the client's limits must be
    true for an answer.
    """

    answer: ClassVar[type[Message]]
    asked: ClassVar[Asked]
    permission: ClassVar[str | None]
    # Whether `fault_in` needs no number of rows, and takes several answers stacked in one.
    checks_stacks: ClassVar[bool] = False
    title: ClassVar[str]  # what people read in previews and reports
    content: ClassVar[str]  # what its answer holds, in words

    def __init_subclass__(
        cls,
        *,
        code: int | None = None,
        asked: Asked = Asked.EACH,
        permission: str | None = None,
    ) -> None:
        super().__init_subclass__(code=code)
        if code is not None:  # what several queries share has none
            (cls.answer,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
            cls.asked, cls.permission = asked, permission

    @classmethod
    def needed(cls, _study: "Study") -> bool:
        """Whether this study asks the query; a client answers no other queries."""
        return True

    @classmethod
    def content_in(cls, _study: "Study") -> str:
        """What its answer holds in this study, in words."""
        return cls.content

    @classmethod
    def left_out_in(cls, _study: "Study") -> frozenset[str]:
        """The fields of its answer that are nothing but zeros in this study."""
        return frozenset()

    @classmethod
    def most(cls, _study: "Study") -> int:
        """How many different queries of this kind this study asks; each is answered once."""
        return 1

    def is_plausible(self, _study: "Study") -> bool:
        """Whether an honest server could ask it; a client checks this before it reads any row."""
        return all(largest_size(array) <= LARGEST_ASKED for array in self.arrays())

    def arrays(self) -> list[FloatArray]:
        """The arrays whose numbers are bounded."""
        return [held for _, held in self.named_arrays()]

    def named_arrays(self) -> list[tuple[str, FloatArray]]:
        """All arrays of the query, by field."""
        return [(name, held) for name, held in vars(self).items() if isinstance(held, np.ndarray)]

    def fault_in(self, _answer: AnswerType, _study: "Study", _n_rows: int, /) -> str | None:
        """What cannot be true in a client's answer, given the rows that it enrolled with."""
        return None

    def shapes(self, _study: "Study") -> dict[str, tuple[int, ...]]:
        """The sums in its answer, by field, that may be added under masks; empty if none may."""
        return {}

    def step(self, _answer: AnswerType, /) -> FloatArray | None:
        """How an answer moves the policy, to be compared between clients; None if it does not."""
        return None
