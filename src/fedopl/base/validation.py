"""Pydantic models that raise our own validation errors, in plain words."""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from fedopl.base.errors import FedoplError, OptionError
from fedopl.base.whole_numbers import check_64_bits, shown

_EXACT = "sums are exact now, and [privacy] in the study is what hides rows from a server"
_ONCE = "a study's questions are answered once each, and how many it has is known from the study"
GONE_LIMITS = {
    "value_noise": _EXACT,
    "dominance": "`fedopl check` names the column and the value instead",
    "withheld_answers": "refusals say why, and there is nothing to unlock",
    "value_policies": _ONCE,
    "value_queries": _ONCE,
    "score_queries": _ONCE,
    "slope_queries": _ONCE,
    "descriptions": _ONCE,
    "count_queries": _ONCE,
    "cell_queries": _ONCE,
    "model_queries": _ONCE,
    "classifier_queries": _ONCE,
}
GONE_KEYS = {
    **GONE_LIMITS,
    "new_rows": "a study is answered for the rows it was first asked about; for other rows, agree "
    "on a new study",
}


def what_became_of(key: object) -> str | None:
    """What to say of this key, if it is one of those."""
    if key not in GONE_KEYS:
        return None
    return f"is no longer a setting ({GONE_KEYS[str(key)]}); delete the line"


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _SaysInWords(ModelMetaclass):
    """Translates errors when a user constructs a model; nested models keep pydantic's errors."""

    error: type[FedoplError]

    def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805
        for name, value in fields.items():
            check_64_bits(value, f"{cls.__name__.lower()}: {name}")
        try:
            return super().__call__(*args, **fields)
        except ValidationError as error:
            raise cls.error(error_in_words(error, cls.__name__.lower())) from None


class Checked(BaseModel, metaclass=_SaysInWords):
    """A model that is frozen, refuses unknown keys, and is checked when it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    error: ClassVar[type[FedoplError]] = OptionError


class PlacedError(ValueError):
    """A contradiction among settings, with the place of the setting that has to change.

    Validators raise it. `place` holds the keys from the validated record to the setting. Code that
    reads a file uses them to name the line. `subject` is the name of the setting in words.
    """

    def __init__(self, subject: str, message: str, place: tuple[str, ...] | None = None) -> None:
        super().__init__(f"{subject}: {message}")
        self.subject, self.message = subject, message
        self.place = tuple(subject.split(".")) if place is None else place

    def within(self, *above: str) -> "PlacedError":
        """The same error, for a record that is nested in another under these keys."""
        return PlacedError(self.subject, self.message, (*above, *self.place))


def same_as(model: type[BaseModel], name: str) -> Any:
    """A field with the default, the bounds and the description of another model's field."""
    return model.model_fields[name]


def error_in_words(error: ValidationError, what: str) -> str:
    """One line per mistake: the field, what was wrong, and the value given."""
    lines = []
    for mistake in error.errors(include_url=False):
        field = ".".join(map(str, mistake["loc"]))
        lines.append(": ".join(filter(None, (what, field, complaint(mistake)))))
    return "\n".join(lines)


def complaint(mistake: Any) -> str:
    """What was wrong and the value given, without the place."""
    message: str = mistake["msg"].removeprefix("Value error, ")
    if mistake["type"] == "extra_forbidden" and (gone := what_became_of(mistake["loc"][-1])):
        return gone
    says_it = mistake["type"] in ("missing", "value_error")
    return message if says_it else f"{message}, came {shown(mistake['input'])}"


def in_place(mistake: Any) -> tuple[tuple[Any, ...], str]:
    """The keys from the validated record to the mistake, and the complaint."""
    error = mistake.get("ctx", {}).get("error")
    if isinstance(error, PlacedError):
        return (*mistake["loc"], *error.place), error.message
    return mistake["loc"], complaint(mistake)
