"""A feature as `study.toml` describes it: a number, its levels, or the rule for a date."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from fedopl.base.date_rules import COUNTED, LABELLED, RULES_IN_WORDS, SINCE, is_date_rule
from fedopl.base.schema import as_label


@dataclass(frozen=True)
class FeatureSpec:
    """What the file says of a feature: a number if nothing, its levels, or a rule for dates."""

    levels: tuple[str, ...] | None = None
    other: str | None = None  # the level that labels not listed stand for
    date: str | None = None  # the rule


def _feature(spec: Any) -> FeatureSpec:
    if isinstance(spec, FeatureSpec):
        return spec
    if spec == "number":
        return FeatureSpec()
    if isinstance(spec, list | tuple):
        return FeatureSpec(levels=tuple(map(as_label, spec)))
    if isinstance(spec, dict) and spec.keys() == {"levels", "others"}:
        other, levels = as_label(spec["others"]), [as_label(level) for level in spec["levels"]]
        named = [level for level in levels if level != other]
        return FeatureSpec(levels=(*named, other), other=other)
    if is_date_rule(spec):
        return FeatureSpec(levels=LABELLED.get(spec), date=spec)
    raise ValueError(
        f'expected "number", a list of all its levels, {{ levels = [...], others = "other" }}, or '
        f"for dates {RULES_IN_WORDS}, came {spec!r}"
    )


_LABEL = {"type": ["string", "number", "boolean"]}
_LEVELS = {"type": "array", "items": _LABEL, "minItems": 1}
Feature = Annotated[
    FeatureSpec,
    PlainValidator(_feature),
    PlainSerializer(asdict),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["number", *LABELLED, *COUNTED]},
                {"type": "string", "pattern": f"^{SINCE.pattern}$"},
                {**_LEVELS, "minItems": 2},
                {
                    "type": "object",
                    "required": ["levels", "others"],
                    "additionalProperties": False,
                    "properties": {"levels": _LEVELS, "others": _LABEL},
                },
            ]
        }
    ),
]
