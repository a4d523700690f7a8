"""`study.toml`: the study as people write it. Its sections take their fields from the plans."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from fedopl.base import schema
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.base.schema import Direction, KnownPropensity, Label, MissingRule, Schema, as_label
from fedopl.base.toml_file import TomlFile
from fedopl.base.validation import Checked, PlacedError, in_place, same_as
from fedopl.policies.allowed.permissions import ByClient, NeverRules, Permissions
from fedopl.policies.basis import Basis
from fedopl.policies.kinds import load_policy, misfit
from fedopl.policies.policy import Policy
from fedopl.policies.trees.tree_plan import TreePlan
from fedopl.study import plans
from fedopl.study.guardrail import Guardrail
from fedopl.study.mixture import Mixture
from fedopl.study.policy_plans import CautionPlan, Linear, OracleName
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.spending import Budget, Cost, Costs
from fedopl.study.study import Study


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
    if schema.is_date_rule(spec):
        return FeatureSpec(levels=schema.LABELLED.get(spec), date=spec)
    raise ValueError(
        f'expected "number", a list of all its levels, {{ levels = [...], others = "other" }}, or '
        f"for dates {schema.RULES_IN_WORDS}, came {spec!r}"
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
                {"enum": ["number", *schema.LABELLED, *schema.COUNTED]},
                {"type": "string", "pattern": f"^{schema.SINCE.pattern}$"},
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


class Outcome(Checked):
    """What came of a decision."""

    column: str = same_as(Schema, "reward")
    sum: dict[str, float] = same_as(Schema, "reward_sum")
    direction: Direction = same_as(Schema, "direction")
    missing: Literal["error", "drop"] | None = same_as(Schema, "missing_reward")


class Action(Checked):
    """What could be done."""

    column: str = same_as(Schema, "action")
    levels: tuple[Label, ...] = same_as(Schema, "actions")
    propensity: KnownPropensity | None = same_as(Schema, "propensity")
    costs: dict[str, Cost] | None = Field(
        default=None, description=Costs.model_fields["by_action"].description
    )
    cost_unit: str | None = same_as(Costs, "unit")


class RowsPlan(Checked):
    """What rows are like."""

    missing: MissingRule = same_as(Schema, "missing")
    weight: str | None = same_as(Schema, "weight")
    group: str | None = same_as(Schema, "group")


_WITHOUT_ORACLE = {
    "tree": "a tree is searched for",
    "neural": "a network is trained from the exact policy",
}


class PolicySection(CautionPlan):
    """What kind of policy is wanted, and how it is found."""

    kind: Literal["linear", "tree", "finite", "neural"] = Field(
        default="linear",
        description="linear, tree, neural, or finite: the best of named candidates",
    )
    features: Literal["shared", "blocks"] = same_as(Linear, "features")
    oracle: OracleName = same_as(Linear, "oracle")
    precision: Literal["rows", "clients", "auto"] = same_as(Linear, "precision")
    candidates: dict[str, str] = Field(
        default_factory=dict, description="finite: saved policies by name, relative to this file"
    )
    never: NeverRules = same_as(Permissions, "never")
    only: ByClient = same_as(Permissions, "only")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        said = {"features", "oracle", "precision"}
        if self.kind == "linear":
            said |= {"caution"}
        elif self.caution and self.kind == "neural":
            message = "is for linear policies, trees and candidates; networks have no such errors"
            raise PlacedError("caution", message)
        linear = Linear.model_validate(self.model_dump(include=said))
        if self.kind not in _WITHOUT_ORACLE:
            return self
        if linear.oracle != "csoaa-exact":
            message = f"{_WITHOUT_ORACLE[self.kind]}; an oracle is for linear policies"
            raise PlacedError("oracle", message)
        if linear != Linear():
            what = "a tree" if self.kind == "tree" else "a neural policy"
            message = f"{what} has neither blocks of features nor precision"
            raise PlacedError("policy", message, ("kind",))
        return self


class StudyFile(Checked):
    """The whole file."""

    name: str = Field(min_length=1, description="what the study is called")
    seed: int = same_as(Study, "seed")
    quorum: float = same_as(Study, "quorum")
    aggregators: tuple[str, ...] = same_as(Study, "aggregators")
    outcome: Outcome
    action: Action
    features: dict[str, Feature] = Field(
        min_length=1,
        description='each feature: "number", the list of all its levels, or a rule for dates',
    )
    basis: Basis | None = same_as(Study, "basis")
    budget: Budget | None = same_as(Study, "budget")
    rows: RowsPlan = RowsPlan()
    policy: PolicySection = PolicySection()
    tree: TreePlan = Field(default=TreePlan(), description="of a tree policy")
    neural: plans.NetworkPlan = Field(default=plans.NetworkPlan(), description="of a neural policy")
    plan: plans.TrainingPlan = same_as(Linear, "training")
    mixture: Mixture = same_as(Study, "mixture")
    nuisances: plans.NuisancePlan = Field(
        default=plans.NuisancePlan(), description="how scores are computed"
    )
    evaluation: plans.EvaluationPlan = plans.EvaluationPlan()
    joining: plans.JoiningPlan = plans.JoiningPlan()
    personal: plans.PersonalPlan = plans.PersonalPlan()
    guardrails: dict[str, Guardrail] = same_as(Study, "guardrails")
    target: plans.TargetPlan | None = same_as(Study, "target")
    privacy: PrivacyPlan | None = same_as(Study, "privacy")
    declared: plans.Declared = same_as(Study, "declared")
    ranges: plans.Ranges = same_as(Study, "ranges")
    requires: plans.Grants = same_as(Study, "requires")

    @model_validator(mode="after")
    def _is_a_study(self) -> Self:
        for part, above in (("table", ("table",)), ("study", ())):
            try:
                getattr(self, part)
            except ValidationError as error:
                raise _in_file(error, above) from None
        if self.nuisances.outcome == "plugged-in":
            message = (
                "a file cannot hold a regressor; use boosting, or give it to learn() in Python"
            )
            raise PlacedError("nuisances.outcome", message)
        if self.tree != TreePlan() and self.policy.kind != "tree":
            raise PlacedError("tree", f"the policy is {self.policy.kind}, not a tree")
        if self.neural != plans.NetworkPlan() and self.policy.kind != "neural":
            raise PlacedError("neural", f"the policy is {self.policy.kind}, not a neural one")
        return self

    @cached_property
    def table(self) -> Schema:
        """The meaning of the columns."""
        specs = self.features.items()
        return Schema.model_validate(
            {
                "action": self.action.column,
                "actions": self.action.levels,
                "reward": self.outcome.column,
                "reward_sum": self.outcome.sum,
                "outcomes": tuple(dict.fromkeys(g.column for g in self.guardrails.values())),
                "direction": self.outcome.direction,
                "missing_reward": self.outcome.missing,
                "numeric": [name for name, spec in specs if spec.levels is None],
                "categorical": {n: spec.levels for n, spec in specs if spec.levels is not None},
                "dates": {name: spec.date for name, spec in specs if spec.date},
                "others": {name: spec.other for name, spec in specs if spec.other},
                "propensity": self.action.propensity,
                **dict(self.rows),
            }
        )

    @cached_property
    def study(self) -> Study:
        """The study that is agreed on, hashed and run."""
        sections = self.model_dump(mode="json")
        costs = {"by_action": self.action.costs or {}, "unit": self.action.cost_unit}
        flat = {name: sections[name] for name in _SAME_IN_FLAT_FORM} | {
            "actions": self.table.actions,
            "features": self.table.feature_names,
            "table": self.table.model_dump(mode="json"),
            "policy": self.policy.kind,
            "policy_features": self.policy.features,
            "candidates": list(self.policy.candidates),
            "oracle": self.policy.oracle,
            "precision": self.policy.precision,
            "evaluation": self.evaluation.kind,
            "evaluation_share": self.evaluation.share,
            "describe": self.evaluation.describe,
            "splits": self.evaluation.splits,
            "diagnose": self.joining.diagnose,
            **{name: sections[name] for name in _LEFT_OUT_IF_NOT_SAID if getattr(self, name)},
            **({"costs": costs} if (self.action.costs, costs["unit"]) != (None, None) else {}),
            **({"neural": sections["neural"]} if self.policy.kind == "neural" else {}),
            **({"caution": self.policy.caution} if self.policy.caution else {}),
            "permissions": {key: sections["policy"][key] for key in ("never", "only")},
        }
        return Study.model_validate_json(json.dumps(flat))


# Sections and keys that are the same in the flat form and in the file.
_SAME_IN_FLAT_FORM = (
    *("name", "seed", "quorum", "tree", "plan", "mixture", "nuisances", "declared", "requires"),
    "personal",
)
_LEFT_OUT_IF_NOT_SAID = (
    *("basis", "budget", "privacy", "ranges", "aggregators", "target", "guardrails"),
)
# Keys of the file whose place in a study differs; all others have the same place in both.
_PLACES = {
    ("table", "action"): ("action", "column"),
    ("table", "actions"): ("action", "levels"),
    ("table", "propensity"): ("action", "propensity"),
    ("table", "reward"): ("outcome", "column"),
    ("table", "reward_sum"): ("outcome", "sum"),
    ("table", "outcomes"): ("guardrails",),
    ("table", "missing_reward"): ("outcome", "missing"),
    ("table", "numeric"): ("features",),
    ("table", "categorical"): ("features",),
    ("costs", "by_action"): ("action", "costs"),
    ("costs", "unit"): ("action", "cost_unit"),
    ("policy", "linear"): ("policy",),
    ("policy", "training"): ("plan",),
    ("policy", "tree"): ("tree",),
    ("policy", "neural"): ("neural",),
}


def _in_file(error: ValidationError, above: tuple[str, ...]) -> PlacedError:
    """The first contradiction in a study, or in its part `above`, by the file's own keys."""
    mistake, *_ = error.errors(include_url=False)
    place, message = in_place(mistake)
    place = (*above, *place)
    keys = (*_PLACES.get(place[:2], place[:2]), *map(str, place[2:]))
    return PlacedError(".".join(keys), message, keys)  # a key may have dots of its own


def check_named(path: str | Path, study: Study, clients: Iterable[str]) -> None:
    """Refuse a mixture or permissions that name unknown clients; the error says which line."""
    names = list(clients)
    try:
        study.mixture.weights(dict.fromkeys(_sources(study, names), 1))
        if study.permissions:
            study.permissions.check_clients(names)
    except (PlacedError, OptionError) as error:
        place = error.place if isinstance(error, PlacedError) else ("mixture",)
        raise OptionError(TomlFile.read(Path(path)).complaint(place, str(error))) from None


def _sources(study: Study, clients: list[str]) -> list[str]:
    """All clients except the target, which must be one of them."""
    if study.target is None:
        return clients
    sources = [name for name in clients if not study.is_target(name)]
    message = ""
    if len(sources) == len(clients):
        message = f"'{study.target.client}' is not among the clients; there are {quoted(clients)}"
    elif not sources:
        message = "there is no other client; policies are learned from clients with outcomes"
    if message:
        raise PlacedError("target.client", message, ("target", "client"))
    return sources


def _file_of(path: Path) -> Path:
    """The path, unless it is a folder; then an error says which file to name instead."""
    if path.is_dir() and (path / "study.toml").is_file():
        raise OptionError(f"{path}: is a folder; name the study in it: {path / 'study.toml'}")
    if path.is_dir() and (path / "client.toml").is_file():
        raise OptionError(f"{path}: is a client's folder; expected a study file")
    return path


def read_study(path: str | Path) -> tuple[Study, dict[str, Policy]]:
    """The study in this file, and those of its candidates that are saved policies."""
    file = TomlFile.read(_file_of(Path(path)))
    if "data" in file.content and not {"outcome", "action", "features"} & file.content.keys():
        raise OptionError(f"{path}: is a client's file; expected a study, with [outcome] in it")
    parsed = file.parsed(StudyFile)
    study = parsed.study
    if parsed.policy.candidates and not study.policy.compares_candidates:
        message = 'candidates: only kind = "finite" chooses among candidates'
        raise OptionError(file.complaint(("policy", "candidates"), message))
    candidates = {}
    for name, saved in parsed.policy.candidates.items():
        policy = load_policy(file.path.parent / saved)
        if (fault := misfit(policy, study)) is not None:
            message = f"candidate '{name}': {fault}"
            raise OptionError(file.complaint(("policy", "candidates", name), message))
        candidates[name] = policy
    return study, candidates
