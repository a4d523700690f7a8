"""Settings of version 0.2.0 that are gone, and what became of each: one line for an old file."""

from typing import Any

from fedopl.base.validation import PlacedError

_EXACT = "sums are exact now, and [privacy] in the study is what hides rows from a server"
_ONCE = "a study's questions are answered once each, and how many it has is known from the study"
_GONE_LIMITS = {
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
_GONE_OF_CLIENT = {
    "new_rows": "a study is answered for the rows it was first asked about; for other rows, agree "
    "on a new study",
}


def refuse_gone_limits(given: Any) -> Any:
    """The settings as given; an error if one of them is a limit that is gone."""
    return _refuse(given, _GONE_LIMITS)


def refuse_gone_of_client(given: Any) -> Any:
    """The same for the settings at the top of client.toml."""
    return _refuse(given, _GONE_OF_CLIENT)


def _refuse(given: Any, gone: dict[str, str]) -> Any:
    for name in gone.keys() & given.keys() if isinstance(given, dict) else ():
        raise PlacedError(name, f"no longer a setting ({gone[name]}); delete the line", (name,))
    return given
