"""`study.toml`: what every party agrees on, as people write it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from fedopl.base.errors import FedoplError, OptionError
from fedopl.base.schema import Direction, Label, MissingRule, Schema
from fedopl.base.toml_file import TomlFile
from fedopl.base.validation import Checked
from fedopl.policies.kinds import Policy, load_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.tree_plan import TreePlan
from fedopl.study.mixture import Empirical, Mixture
from fedopl.study.study import (
    Declared,
    Grants,
    NuisancePlan,
    OracleName,
    PolicyKind,
    Study,
    TrainingPlan,
)


def _feature(spec: Any) -> Any:
    if spec == "number":
        return None
    if isinstance(spec, list | tuple):
        return tuple(spec)
    raise ValueError(f'expected "number" or a list of all its levels, came {spec!r}')


# A feature is a number, here None, or the list of its levels.
Feature = Annotated[
    tuple[Label, ...] | None,
    BeforeValidator(_feature),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "number"},
                {
                    "type": "array",
                    "items": {"type": ["string", "number", "boolean"]},
                    "minItems": 2,
                },
            ]
        }
    ),
]


class Outcome(Checked):
    """What came of a decision."""

    column: str = Field(description="the column with the outcome, a number")
    direction: Direction = Field(description="whether a higher or a lower outcome is better")


class Action(Checked):
    """What could be done."""

    column: str = Field(description="the column that says what was done")
    levels: tuple[Label, ...] = Field(description="every action there is, taken anywhere or not")
    propensity: str | dict[Label, str] | None = Field(
        default=None,
        description="if known: the column with the probability of what was done, "
        "or one column for each action",
    )


class Rows(Checked):
    """What rows are like."""

    missing: MissingRule = Field(
        default="error",
        description="missing values: refuse the table, drop the rows, or mark missing features",
    )
    weight: str | None = Field(default=None, description="the column with row weights")
    group: str | None = Field(default=None, description="the column that says what goes together")


class PolicySection(Checked):
    """What kind of policy is wanted, and how it is found."""

    kind: PolicyKind = Field(
        default="linear", description="linear, tree, or finite: the best of named candidates"
    )
    features: Literal["shared", "blocks"] = Field(
        default="shared", description="all features for each action, or equal blocks of them"
    )
    oracle: OracleName = Field(default="csoaa-exact", description="how the policy is found")
    precision: Literal["rows", "clients"] = Field(
        default="rows", description="clients: those with noisy scores count less"
    )
    candidates: dict[str, str] = Field(
        default_factory=dict, description="finite: saved policies by name, relative to this file"
    )


class Evaluation(Checked):
    """What is said of the policy, and on which rows."""

    share: float = Field(
        default=0.25, ge=0, le=0.9, description="of rows held out; with 0, no value is claimed"
    )
    describe: bool = Field(
        default=True, description="clients tell how decisions split, and how likely actions were"
    )


class Joining(Checked):
    """What is asked about clients, so that each can tell whether joining pays."""

    diagnose: bool = Field(
        default=False, description="clients tell where they differ, and what joining is worth"
    )


class StudyFile(Checked):
    """The whole file."""

    name: str = Field(min_length=1, description="what the study is called")
    seed: int = Field(default=0, description="decides folds, held-out rows and batches")
    quorum: float = Field(
        default=0.5, gt=0, le=1, description="the share of clients that must answer"
    )
    outcome: Outcome
    action: Action
    features: dict[str, Feature] = Field(
        min_length=1, description='each feature: "number", or the list of all its levels'
    )
    rows: Rows = Rows()
    policy: PolicySection = PolicySection()
    tree: TreePlan = Field(default=TreePlan(), description="of a tree policy")
    plan: TrainingPlan = Field(default=TrainingPlan(), description="of the iterative oracles")
    mixture: Mixture = Field(default=Empirical(), description="how much each client counts")
    nuisances: NuisancePlan = Field(default=NuisancePlan(), description="how scores come about")
    evaluation: Evaluation = Evaluation()
    joining: Joining = Joining()
    declared: Declared = Field(default=Declared(), description="what is true of every row")
    requires: Grants = Field(
        default=Grants(), description="what every client's limits must at least allow"
    )

    @property
    def table(self) -> Schema:
        """What the columns mean."""
        return Schema(
            action=self.action.column,
            actions=self.action.levels,
            reward=self.outcome.column,
            direction=self.outcome.direction,
            numeric=tuple(name for name, levels in self.features.items() if levels is None),
            categorical={
                name: levels for name, levels in self.features.items() if levels is not None
            },
            propensity=self.action.propensity,
            weight=self.rows.weight,
            group=self.rows.group,
            missing=self.rows.missing,
        )

    @property
    def study(self) -> Study:
        """The study that is agreed on, hashed and run."""
        table = self.table
        return Study(
            name=self.name,
            actions=table.actions,
            features=table.feature_names,
            table=table,
            policy=self.policy.kind,
            policy_features=self.policy.features,
            tree=self.tree,
            candidates=tuple(self.policy.candidates),
            oracle=self.policy.oracle,
            plan=self.plan,
            precision=self.policy.precision,
            nuisances=self.nuisances,
            mixture=self.mixture,
            evaluation_share=self.evaluation.share,
            describe=self.evaluation.describe,
            diagnose=self.joining.diagnose,
            declared=self.declared,
            requires=self.requires,
            quorum=self.quorum,
            seed=self.seed,
        )


# Where the file says what a contradiction names first; it is found among the parts together.
_PLACES: dict[str, tuple[str, ...]] = {
    "actions": ("action", "levels"),
    "propensity": ("action", "propensity"),
    "roles of columns": ("action", "column"),
    "nuisances.propensity": ("nuisances", "propensity"),
    "numeric, categorical": ("features",),
    "policy_features": ("policy", "features"),
    "oracle": ("policy", "oracle"),
    "precision": ("policy", "precision"),
    "policy": ("policy", "kind"),
    "tree": ("tree",),
    "tree.cuts": ("tree", "cuts"),
    "tree.allowed": ("tree", "allowed"),
}


def check_mixture(path: str | Path, study: Study, clients: Iterable[str]) -> None:
    """Refuse a mixture that names other clients than there are, and say in which line."""
    try:
        study.mixture.weights(dict.fromkeys(clients, 1))
    except OptionError as error:
        message = TomlFile.read(Path(path)).complaint(("mixture",), str(error))
        raise OptionError(message) from None


def read_study(path: str | Path) -> tuple[Study, dict[str, Policy]]:
    """The study in this file, and its candidates that are saved policies."""
    file = TomlFile.read(Path(path))
    parsed = file.parsed(StudyFile)
    try:
        study = parsed.study
    except FedoplError as error:
        raise OptionError(_placed(file, str(error))) from None
    if parsed.policy.candidates and study.policy != "finite":
        message = 'candidates: only kind = "finite" chooses among candidates'
        raise OptionError(file.complaint(("policy", "candidates"), message))
    candidates = {}
    for name, saved in parsed.policy.candidates.items():
        policy = load_policy(file.path.parent / saved)
        if (policy.action_names, policy.feature_names) != (study.actions, study.features):
            message = f"candidate '{name}': its actions or features are not the study's"
            raise OptionError(file.complaint(("policy", "candidates", name), message))
        if isinstance(policy, TreePolicy) and policy.encoding != study.encoding:
            message = f"candidate '{name}': its columns or levels are not the study's"
            raise OptionError(file.complaint(("policy", "candidates", name), message))
        candidates[name] = policy
    return study, candidates


def _placed(file: TomlFile, message: str) -> str:
    _, _, text = message.partition(": ")
    subject = text.partition(": ")[0]
    column = subject.removeprefix("categorical ").strip("'")
    place = _PLACES.get(subject, ("features", column))
    return file.complaint(place, text.replace(subject, ".".join(place), 1))
