"""Settings of version 0.2.0 that are gone, and what became of each: a line for an old file."""

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
