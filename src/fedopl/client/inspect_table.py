"""Inspects a client's table before a study runs, at the client. Nothing of it is ever released."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, FedoplError, OptionError
from fedopl.base.files import ANYBODY_HERE, who_else_reads
from fedopl.client.answers.tell_moments import beyond_declared
from fedopl.client.client_file import Client
from fedopl.client.disclosure.ledger import FileLedger, summaries
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.local.obeyed_scores import ObeyedScores
from fedopl.client.private.private_rows import PrivateRows
from fedopl.client.scoring.cross_fit import NuisanceModels, Nuisances, cross_fit
from fedopl.client.scoring.fit_check import FitCheck, check_fit
from fedopl.client.scoring.overlap import Overlap, overlap
from fedopl.client.scoring.propensity import ImpossiblePropensitiesError, fit_propensities
from fedopl.client.table.encoder import Attrition, RowsDroppedWarning
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.table_findings import (
    alone_in_cells,
    dominating_values,
    far_values,
    n_repeated_rows,
    rules_found,
)
from fedopl.client.workspace import Workspace
from fedopl.study.plans import EvaluationPlan
from fedopl.study.private.added_up import adds_under_masks
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.private.private_units import middles_and_units
from fedopl.study.study import Study

# All rows in memory are inspected. Of rows on disk, only this many are, from the first on.
MOST_EXAMINED = 200_000


@dataclass(frozen=True, kw_only=True)
class FeatureSummary:
    """Summary of one encoded feature."""

    mean: float
    deviation: float
    least: float
    most: float
    is_flag: bool  # whether all values are 0 or 1

    @classmethod
    def of(cls, column: FloatArray) -> Self:
        """The summary of a column."""
        return cls(
            mean=float(column.mean()),
            deviation=float(column.std()),
            least=float(column.min()),
            most=float(column.max()),
            is_flag=bool(np.isin(column, (0, 1)).all()),
        )

    @property
    def is_constant(self) -> bool:
        """Whether every row has the same value."""
        return self.least == self.most


@dataclass(frozen=True, eq=False, kw_only=True)
class Examined:
    """Findings about one client's table; `data` is None if the table could not be read."""

    name: str
    problems: tuple[str, ...]  # what keeps the client from taking part
    cautions: tuple[str, ...]  # what is allowed, and should be known
    rules: tuple[str, ...] = ()  # what the five rules decide, a line each
    data: LoggedData | None = None
    overlap: Overlap | None = None
    fit: FitCheck | None = None
    features: dict[str, FeatureSummary] | None = None
    attrition: Attrition | None = None  # if rows without an outcome were left out
    is_target: bool = False  # then it has contexts only
    minimum_rows: int = 1
    most_terms: float = math.inf  # of which it has rows enough to add sums

    @property
    def takes_part(self) -> bool:
        """Whether it has as many rows as its owner wants it to take part with."""
        return self.data is None or self.data.n_rows >= self.minimum_rows

    @property
    def in_words(self) -> str:
        """A description of what its table holds."""
        if self.data is None or not self.is_target:
            return repr(self.data) if self.data else ""
        return f"the target, {self.data.n_rows:,} rows of {self.data.n_features:,} features alone"


def examine(client: Client, study: Study) -> Examined:
    """Read the client's table by the study's schema; inspect overlap, outcomes and features."""
    assert study.table is not None  # noqa: S101
    lacking = client.settings.limits.lacking(study.requires)
    problems = [client.file.complaint(("limits",), text) for text in lacking]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            client.check_folder()
            data = client.pinned(study, client.rows_for(study), rehearsing=True)
        except FedoplError as error:
            return Examined(name=client.name, problems=(*problems, str(error)), cautions=())
    cautions = [str(warning.message) for warning in caught]
    if client.settings.data.file and who_else_reads(client.table_path) == ANYBODY_HERE:
        cautions.append(
            f"its rows can be read by {ANYBODY_HERE}; if they should not be: chmod o-r "
            f"{client.table_path}"
        )
    dropped = [w.message.gaps for w in caught if isinstance(w.message, RowsDroppedWarning)]
    if study.is_target(client.name):
        return _examined_target(client, study, data, problems, cautions)
    whole = data
    if whole.is_on_disk:
        data = whole.part(slice(0, MOST_EXAMINED))
        cautions.append(
            f"has {whole.n_rows:,} rows on disk; {data.n_rows:,} of them were looked at"
        )
    found, fit = None, None
    try:
        scored, nuisances = _alone(data, study)
        found, fit = overlap(scored, nuisances), check_fit(scored, nuisances, study.basis)
    except ImpossiblePropensitiesError as error:
        problems.append(str(error))
    except FedoplError as error:  # it may still borrow from others, or be refused
        cautions.append(f"cannot be scored alone: {error}")
    columns = dict(zip(data.feature_names, data.contexts.T, strict=True))
    limits = client.settings.limits
    space = _space(data, study, limits)
    return Examined(
        name=client.name,
        rules=() if study.privacy else tuple(rules_found(space, _n_studies(client, study))),
        problems=(
            *problems,
            *_contradictions(client.name, data, study, limits),
        ),
        cautions=(
            *cautions,
            *(found.cautions if found else ()),
            *(fit.cautions if fit else ()),
            *private_cautions(data, study),
            *_forbidden(client.name, data, study),
            *_cautions(client.name, data, columns),
        ),
        data=whole,
        overlap=found,
        fit=fit,
        features={name: FeatureSummary.of(column) for name, column in columns.items()},
        attrition=dropped[0].attrition if dropped else None,
        most_terms=math.inf if study.privacy else limits.most_terms(space.n_training),
        # Under masks, nobody reads the sums of one client, however few its rows are.
        minimum_rows=1 if adds_under_masks(study) else limits.minimum_rows,
    )


def _examined_target(
    client: Client, study: Study, data: LoggedData, problems: list[str], cautions: list[str]
) -> Examined:
    """The findings in a table of contexts, which has no overlap or outcomes to inspect."""
    limits = client.settings.limits
    n_terms = 2 * study.n_features + 1
    if not limits.adds_terms(n_terms, data.n_rows):
        problems.append(
            f"has {data.n_rows:,} rows; means and squares of {study.n_features} features need "
            f"{n_terms / limits.parameter_share:,.0f} of a target (parameter_share)"
        )
    columns = dict(zip(data.feature_names, data.contexts.T, strict=True))
    return Examined(
        name=client.name,
        problems=tuple(problems),
        cautions=(*cautions, *dominating_values(client.name, columns)),
        data=data,
        features={name: FeatureSummary.of(column) for name, column in columns.items()},
        is_target=True,
        minimum_rows=limits.minimum_rows,
    )


def rules_for(client: Client, study: Study, data: LoggedData) -> list[str]:
    """What the five rules decide for its rows, and how many sums rest on one row, in words."""
    space = _space(data, study, client.settings.limits)
    n_cells, share = alone_in_cells(space)
    alone = (
        f"{n_cells:,} sums of a flag, by fold and action, rest on a single row; {share:.1%} of the "
        "rows learned from are alone in one"
    )
    return [*rules_found(space, _n_studies(client, study)), alone]


def _n_studies(client: Client, study: Study) -> int:
    """How many other studies its ledger has answers to."""
    found = summaries(FileLedger(client.ledger_path).entries())
    return sum(own.counts and own.study != study.digest.hex() for own in found)


def _space(data: LoggedData, study: Study, limits: Limits) -> Workspace:
    # In memory only, and without a secret, so that inspecting a table leaves nothing behind.
    return Workspace(data, study, limits, PrivateDraws(study.seed, "", SEED_ALONE))


def _alone(data: LoggedData, study: Study) -> tuple[LoggedData, Nuisances]:
    """The rows, and both nuisances fitted to these rows alone."""
    plan = study.nuisances
    if study.basis is None:
        fitted = cross_fit(
            data,
            outcome=plan.outcome_model,
            propensity=plan.propensity,
            folds=plan.folds,
            seed=study.seed,
        )
        return data, fitted
    # The secret that decides which rows are held out may not be made yet.
    of_all_rows = study.model_copy(update={"evaluation": EvaluationPlan(share=0)})
    space = _space(data, of_all_rows, Limits.open())
    propensities = fit_propensities(space.study_rows, plan.propensity, study.seed)
    models = NuisanceModels(outcomes=space.outcomes.own, propensities=propensities)
    return space.data, models.of(space.study_rows.whole)


def _forbidden(client: str, data: LoggedData, study: Study) -> list[str]:
    """By action, how often it was given where the study now forbids it."""
    forbidden = ObeyedScores(study, client).forbidden(data.contexts)
    if forbidden is None:
        return []
    taken = forbidden[np.arange(data.n_rows), data.actions]
    counts = np.bincount(data.actions[taken], minlength=study.n_actions)
    return [
        f"'{action}' was given in {n_given:,} of {n_taken:,} rows that got it where the study "
        "forbids it (policy.never, policy.only): these rows still count in estimates of what it "
        "is worth, and no policy repeats it"
        for action, n_given, n_taken in zip(
            study.actions, counts.tolist(), data.rows_per_action.tolist(), strict=True
        )
        if n_given
    ]


def _contradictions(client: str, data: LoggedData, study: Study, limits: Limits) -> list[str]:
    """Each bound, in words, that the study declares for every row and that rows here exceed.

    In a private study, whatever else prevents these rows from taking part.
    """
    declared, said = study.declared, list[str]()
    if study.privacy:
        try:
            PrivateRows(data, study, PrivateDraws(study.seed, client, "a look ahead"))
        except (DataError, OptionError) as error:
            return [str(error)]
        return []
    try:
        found = beyond_declared(_space(data, study, limits))
    except RefusedError:  # no propensities, so no scores, which was already reported
        return []
    for bound, n_rows in found.items():
        rows = "1 row has" if n_rows == 1 else f"{n_rows:,} rows have"
        if bound == "reward":
            said.append(
                f"{rows} an outcome beyond ±{declared.reward:g}, which the study declares that "
                "none has (declared.reward): correct them, or agree on a larger bound"
            )
        else:
            said.append(
                f"{rows} an action with a propensity below {declared.overlap:g}, which the study "
                "declares that none has (declared.overlap): leave such rows or actions out, or "
                "agree on a smaller bound"
            )
    return said


def _cautions(client: str, data: LoggedData, columns: dict[str, FloatArray]) -> list[str]:
    # A feature without missing values has a constant mark, which needs no caution.
    marks = [f"{name} is missing" for name in data.schema.feature_columns] if data.schema else []
    constant = [
        name
        for name, column in columns.items()
        if column.min() == column.max() and (name not in marks or column[0])
    ]
    cautions = [f"feature '{name}' is {columns[name][0]:g} in every row" for name in constant]
    features = {f"feature '{name}'": column for name, column in columns.items()}
    is_lower = data.schema is not None and data.schema.direction == "lower"
    outcome = -data.rewards if is_lower else data.rewards  # as in the table
    cautions += far_values({**features, "the outcome": outcome})
    cautions += dominating_values(client, {**features, "the outcome": outcome})
    if np.ptp(data.rewards) == 0:
        cautions.append("the outcome is the same in every row: nothing can be learned from it")
    repeated = n_repeated_rows(data)
    if repeated:
        rows = "1 row repeats" if repeated == 1 else f"{repeated:,} rows repeat"
        cautions.append(f"{rows} another row exactly; check for duplicates")
    return cautions


_MANY = 0.01  # a share of rows; fewer rows beyond a range change little


def private_cautions(data: LoggedData, study: Study) -> Iterator[str]:
    """What the ranges change in these rows, where that is more than a little."""
    if study.privacy is None:
        return
    plan, n_rows, scales = study.privacy, data.n_rows, PrivateSetting(study).scales
    low, high = plan.outcome
    beyond = _mean(data, lambda part: (part.rewards < scales.low) | (part.rewards > scales.high))
    if beyond > _MANY:
        yield (
            f"{beyond:.1%} of {n_rows:,} outcomes lie beyond privacy.outcome, {low:g} to "
            f"{high:g}, and are moved to its ends: values will be of outcomes limited in this "
            "way"
        )
    centre, unit = middles_and_units(study.features, plan.ranges)
    far = _mean(data, lambda part: np.abs((part.contexts - centre) / unit) > 2)
    mean = _mean(data, lambda part: (part.contexts - centre) / unit)
    spread = np.sqrt(_mean(data, lambda part: ((part.contexts - centre) / unit - mean) ** 2))
    for place, feature in enumerate(study.features):
        if feature in plan.ranges and far[place] > 0.2:
            yield (
                f"{far[place]:.0%} of '{feature}' lie beyond its range; rows far out count for less"
            )
        elif feature in plan.ranges and spread[place] < 0.2 and not plan.measures_first:
            yield (
                f"'{feature}' varies little in its range; a narrower range would need less noise, "
                'or let the run find it: scales = "measured"'
            )
    least = study.declared.overlap
    if data.propensities is not None and least is not None:
        small = float(_mean(data, lambda part: np.asarray(part.propensities) < least).mean())
        if small > 0:
            yield (
                f"{small:.1%} of known propensities are below declared.overlap, {least:g}, "
                "and are raised to it: values will be biased by that"
            )


def _mean(data: LoggedData, of: Callable[[LoggedData], Any]) -> Any:  # (n_columns,), or a number
    """The mean of a function of the rows, over all rows, in slices."""
    return sum(of(data.part(rows)).sum(axis=0) for rows in data.slices()) / data.n_rows
