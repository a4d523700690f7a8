"""The actions and features that a policy is about, and contexts checked against them."""

from typing import Any, Protocol

from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, check_finite, float_array
from fedopl.base.errors import DataError
from fedopl.base.labels import quoted
from fedopl.base.schema import Encoding


class Domain(Protocol):
    """What turns plain numbers into a policy; every study is one."""

    @property
    def actions(self) -> tuple[str, ...]:
        """What a policy decides between."""

    @property
    def features(self) -> tuple[str, ...]:
        """What a policy looks at."""

    @property
    def encoding(self) -> Encoding | None:
        """How a table becomes features, where tables are read."""


def checked_contexts(contexts: ArrayLike, feature_names: tuple[str, ...]) -> FloatArray:
    """The contexts as numbers; the columns of a frame are put in the policy's order."""
    if hasattr(contexts, "columns"):
        contexts = _reordered(contexts, feature_names)
    array = float_array(contexts, "contexts", ndim=2)
    if array.shape[1] != len(feature_names):
        raise DataError(
            f"contexts: the policy was learned on {len(feature_names)} features "
            f"({quoted(feature_names)}), came {array.shape[1]}"
        )
    check_finite(array, "contexts", feature_names)
    return array


def _reordered(frame: Any, feature_names: tuple[str, ...]) -> Any:
    missing = [name for name in feature_names if name not in list(frame.columns)]
    if missing:
        raise DataError(f"contexts: the policy needs columns {quoted(missing)}")
    return frame[list(feature_names)]
