"""A drafted study as text: the role of each column, with a question wherever it is a guess."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError, OptionError
from fedopl.base.toml_file import toml_key, toml_text
from fedopl.client.column_profiles import LOWER_WORDS, OUTCOME_WORDS, Profile, Roles
from fedopl.client.disclosure.limits import Limits
from fedopl.client.drafted_basis import basis_lines, drafted_basis, fewest_terms
from fedopl.privacy.score_axes import longest_turned, noise_of_scores
from fedopl.study.plans import USUAL_SHARE, NuisancePlan
from fedopl.study.private.privacy_plan import EXACT, OF_FLAGS, PrivacyPlan, Range
from fedopl.study.private.private_setting import VALUE_SHARE, most_terms
from fedopl.study.private.private_units import likely_values
from fedopl.study.study_check import MOST_TO_SCREEN

# Marks a line that a person has to confirm.
CONFIRM = "CONFIRM"
# A feature with more labels than the first is pooled, and at most the second keep a name.
MOST_LEVELS, NAMED_LEVELS = 20, 10
# The share of rows to count on, because folds are not all alike.
_ROOM = 0.8
# Rows with a missing feature are left out up to this share of rows. Beyond it, they are marked.
FEW_GAPS = 0.05
# A number with at most this many different values may be a code.
FEW_CODES = 6
# In [privacy].
EPSILON = 8.0
_WIDTH = 100  # of a comment
# The quantiles that a drafted range includes, of a feature and of the outcome. Rows with features
# far beyond their ranges count for less; an outcome beyond its range is moved to the nearest end.
_MOST, _NEARLY_ALL = (0.02, 0.98), (0.002, 0.998)
# Where propensities are not known: no action is assumed to have been less likely anywhere than this
# part of its share. In any case, no overlap below the second number is drafted.
_LESS_LIKELY, _LEAST_OVERLAP = 0.25, 0.02
NO_BASIS = "# No [basis], so all effects are linear. Terms for effects that bend"


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the person who asks for a draft already knows."""

    action: str | None = None  # the column of actions
    outcome: str | None = None
    client_column: str | None = None  # its values are the clients, all in one table
    private: bool | None = None  # noise hides rows; None: exact, and noise as a comment


# --- differential privacy: ranges and overlap to confirm, and what noise costs --------------------

# Ranges are round numbers around the values of most rows, so that they show no single row's value.


@dataclass(frozen=True, kw_only=True)
class DraftedPrivacy:
    """The declarations of a study with differential privacy."""

    plan: PrivacyPlan
    overlap: float
    sizes: Sequence[int]  # rows by client
    spread: float  # standard deviation of the outcome

    @classmethod
    def of(
        cls,
        found: Mapping[str, Profile],
        roles: Roles,
        features: Sequence[Profile],
        sizes: Sequence[int],
    ) -> "DraftedPrivacy":
        """The declarations for these features; the column of groups says whose each row is."""
        outcome = np.asarray(found[roles.outcome].numbers)
        counts = found[roles.action].labels.values()
        known = found[roles.propensity].numbers if roles.propensity else None
        # The smallest propensity of any action: as known, or else a part of the smallest share.
        least = _LESS_LIKELY * (min(counts) / sum(counts)) if known is None else float(known.min())
        digits = 1 - math.floor(math.log10(least))
        overlap = max(math.floor(least * 10.0**digits) / 10.0**digits, _LEAST_OVERLAP)
        ranges = {}
        for one in features:
            if one.years:
                ranges[one.name] = 0.0, 366.0 * (one.years[1] - one.years[0] + 1)
            elif one.numbers is not None:
                ranges[one.name] = _rounded(one.numbers, _MOST)
        delta = min(1e-6, 10.0 ** -(2 + math.floor(math.log10(max(sizes)))))
        said = {"epsilon": EPSILON, "delta": delta, "ranges": ranges}
        if roles.group:
            person = found[roles.group]
            mean = math.ceil(person.n_rows / len(person.labels))
            said |= {"unit": "person", "most_rows_per_person": mean}
        plan = PrivacyPlan.model_validate(said | {"outcome": _rounded(outcome, _NEARLY_ALL)})
        return cls(plan=plan, overlap=overlap, sizes=sizes, spread=float(np.std(outcome)))

    @property
    def n_held_out(self) -> float:
        """The rows of all clients that values are of, by the usual share."""
        return USUAL_SHARE * sum(self.sizes)

    @property
    def noise_of_value(self) -> float:
        """The standard deviation of noise on the value of a policy, in the outcome's unit.

        Every client adds noise to its own answers.
        """
        moves = self.plan.most_rows_per_person * longest_turned(self.overlap)
        deviation = moves / (self.plan.mu * math.sqrt(VALUE_SHARE))
        deviation *= math.sqrt(noise_of_scores(self.overlap)[0, 0] * len(self.sizes))
        low, high = self.plan.outcome
        return deviation / self.n_held_out * (high - low) / 2

    @property
    def price(self) -> str:
        """What this noise costs a study of these rows, in words.

        With r times as many rows, variances are s²/r + z²/r²: s is by sampling, z by noise.
        """
        by_sampling = self.spread / math.sqrt(self.n_held_out)
        more = (1 + math.sqrt(1 + 4 * (self.noise_of_value / by_sampling) ** 2)) / 2
        return (
            f"epsilon = {EPSILON:g} would add noise of ±{self.noise_of_value:.2g} to the value of "
            f"a policy, where sampling alone gives the mean outcome ±{by_sampling:.2g}: as narrow "
            f"an interval would need {more:.2g} times as many rows"
        )

    def lines(self, confirm: str) -> Iterator[str]:
        """The lines of the study file; questions come after `confirm`, the mark and a colon."""
        ranges = {toml_key(name): range_in_toml(own) for name, own in self.plan.ranges.items()}
        question = "its noise hides rows from the server, too; without this section sums are exact"
        yield from ("", f"[privacy]  # {confirm}{question}")
        yield f"epsilon = {EPSILON:g}"
        yield f"delta = {self.plan.delta:g}"
        yield 'noise = "local"'
        if self.plan.unit == "person":
            yield 'unit = "person"'
            what = "of a person with more rows, only this many are used, the first ones"
            yield f"most_rows_per_person = {self.plan.most_rows_per_person}  # {confirm}{what}"
        yield f"outcome = {range_in_toml(self.plan.outcome)}  # {confirm}where all outcomes lie"
        if ranges:
            yield from ("", f"[privacy.ranges]  # {confirm}where most values lie")
            yield from (f"{name} = {own}" for name, own in ranges.items())
        yield from ("", "[declared]")
        yield f"overlap = {self.overlap:g}  # {confirm}was no action ever less likely than this?"

    def commented(self) -> Iterator[str]:
        """The same as a comment of an exact study, with what it promises and would cost."""
        text = f"{EXACT}. [privacy] promises more: {self.price}. `fedopl init --private` drafts it."
        yield from ("", *wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# "))
        yield from (f"# {line}".rstrip() for line in self.lines(""))


def range_in_toml(own: Range) -> str:
    """A range as TOML writes it."""
    return f"[{own[0]:g}, {own[1]:g}]"


def _rounded(numbers: FloatArray, quantiles: tuple[float, float]) -> Range:
    """The range of these quantiles, rounded outwards to about a twentieth of their distance."""
    low, high = (float(bound) for bound in np.quantile(numbers, quantiles))
    if set(np.unique(numbers[:1000]).tolist()) <= set(OF_FLAGS):
        return OF_FLAGS
    if not low < high:
        low, high = float(numbers.min()), float(numbers.max())
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    return math.floor(low / step) * step, math.ceil(high / step) * step


# --- the text -------------------------------------------------------------------------------------


def _levels(labels: Iterable[str]) -> str:
    return f"[{', '.join(map(toml_text, labels))}]"


def _in_order(profile: Profile) -> list[str]:
    if profile.numbers is not None:
        return sorted(profile.labels, key=lambda label: (float(label.replace(",", ".")), label))
    return sorted(profile.labels)


def study_lines(
    title: str,
    found: Mapping[str, Profile],
    roles: Roles,
    sizes: Sequence[int],
    *,
    only_somewhere: list[str],
    private: bool | None,
) -> Iterator[str]:
    """The lines of a study file for clients with so many rows; each guess has a question."""
    outcome, action = found[roles.outcome], found[roles.action]
    yield f"# A draft from tables. Lines with {CONFIRM} are guesses: look at each before it is run."
    yield f"name = {toml_text(title)}"
    yield from ("", "[outcome]")
    yield f"column = {toml_text(outcome.name)}  # {CONFIRM}: is this the outcome that counts?"
    direction = "lower" if outcome.mentions(LOWER_WORDS) else "higher"
    yield f'direction = "{direction}"  # {CONFIRM}: is {direction} better?'
    if outcome.n_missing:
        lost = f"{outcome.n_missing:,} of {outcome.n_rows:,}"
        yield f'missing = "drop"  # {CONFIRM}: {lost} rows have no outcome; leave them out?'
    yield from ("", "[action]")
    yield f"column = {toml_text(action.name)}  # {CONFIRM}: does this say what was done?"
    yield f"levels = {_levels(_in_order(action))}  # {CONFIRM}: are these all there are?"
    if roles.propensity:
        what = "the probability of what was done, not that of treatment"
        yield f"propensity = {toml_text(roles.propensity)}  # {CONFIRM}: is it {what}?"
    yield from ("", f"[features]  # {CONFIRM}: take out what was not known before deciding")
    features = [profile for name, profile in found.items() if name not in roles.columns]
    if all(map(_left_out, features)):
        raise DataError(
            "from: no column is left that could be a feature, beside action and outcome"
        )
    marks = _missing_rule(found, roles) == "indicator"
    fewest = min(sizes)
    n_features, named_levels = _sizes(features, fewest, marks=marks)
    yield from (_feature(profile, named_levels) for profile in features)
    yield from (f"# {toml_key(name)} is not in every table" for name in only_somewhere)
    used = [profile for profile in features if not _left_out(profile)]
    if private and roles.weight:
        raise OptionError(
            f"private: with differential privacy all rows weigh the same; take out '{roles.weight}'"
        )
    can_be_had = private is not False and not roles.weight
    drafted = DraftedPrivacy.of(found, roles, used, sizes) if can_be_had else None
    privacy = drafted if private else None
    if privacy:
        yield from _private_basis(used, privacy)
        yield from privacy.lines(f"{CONFIRM}: ")
    else:
        yield from _basis(used, n_features, fewest)
    if drafted and private is None:
        yield from drafted.commented()
    elif roles.weight:
        yield from ("", f"# {EXACT}.", "# [privacy] cannot be had: rows have weights.")
    yield from ("", "[rows]", *_rows(found, roles))
    if len(sizes) > 1:
        where = ", which stays there and has no noise" if privacy else ""
        what = f"each client also has a policy of its own{where}"
        yield from ("", "[personal]", f'kind = "ridge"  # {what}')
    yield from ("", "[requires]", "values = true")


def _private_basis(features: Sequence[Profile], privacy: DraftedPrivacy) -> Iterator[str]:
    """Where numbers may bend, from public ranges and sizes alone."""
    numbers = tuple(p.name for p in features if p.numbers is not None)
    likely = likely_values(numbers, privacy.plan.ranges)
    others = len(features) - len(likely)
    columns = {name: [values] for name, values in likely.items()}
    learned_from = [round((1 - USUAL_SHARE) * n) for n in privacy.sizes]
    most = most_terms(privacy.plan, learned_from)
    basis = drafted_basis(columns, most_terms=most - others) if columns else None
    yield from basis_lines(basis, CONFIRM)
    if basis is None and (fewest := fewest_terms(columns)):
        enough = max(math.floor(most), 0)
        yield from ("", f"{NO_BASIS} would make")
        yield f"# {fewest + others} terms or more; with noise, rows are enough for {enough}."


def _basis(features: Sequence[Profile], n_features: int, fewest: int) -> Iterator[str]:
    """Where numbers may bend, with as many terms as the rows of every client allow."""
    numbers = {p.name: [p.numbers] for p in features if p.numbers is not None}
    terms_by_row = _ROOM * Limits().parameter_share
    others = n_features - len(numbers)
    # As values are cross-fitted, terms are looked for without each fold, and with all rows.
    n_screenings = (NuisancePlan().folds + 1) * (n_features <= MOST_TO_SCREEN)
    most_terms = fewest * terms_by_row - 1 - others
    basis = drafted_basis(numbers, most_terms=most_terms, n_screenings=n_screenings)
    yield from basis_lines(basis, CONFIRM)
    if basis is None and (least := fewest_terms(numbers)):
        needed = math.ceil((least + others + 1) / terms_by_row)
        yield from ("", f"{NO_BASIS} would need")
        yield f"# about {needed:,} rows at every client; the smallest has {fewest:,}."


def _rows(found: Mapping[str, Profile], roles: Roles) -> Iterator[str]:
    rule = _missing_rule(found, roles)
    if rule == "drop":
        yield f'missing = "drop"  # {CONFIRM}: leave out rows in which a value is missing?'
    if rule == "indicator":
        yield f'missing = "indicator"  # {CONFIRM}: mark missing features, or "drop" their rows?'
    if roles.weight:
        yield f"weight = {toml_text(roles.weight)}  # {CONFIRM}: does it say how much a row counts?"
    if roles.group:
        yield f"group = {toml_text(roles.group)}  # {CONFIRM}: do its rows belong together?"


def _missing_rule(found: Mapping[str, Profile], roles: Roles) -> str:
    """Rows with gaps are dropped if they are few, or if a column that is needed has gaps.

    Gaps of the outcome do not count here.
    """
    gaps = {name: profile.n_missing / profile.n_rows for name, profile in found.items()}
    features = sum(share for name, share in gaps.items() if name not in roles.columns)
    if any(gaps[name] for name in roles.columns - {roles.outcome, None} if name):
        return "drop"
    return ("drop" if features < FEW_GAPS else "indicator") if features else "error"


def _sizes(features: Sequence[Profile], n_rows: int, *, marks: bool) -> tuple[int, int]:
    """The number of features, and how many labels of a pooled column keep a name.

    They fit the default limits of clients, of which the smallest has so many rows.
    """
    widths = [_width(profile) for profile in features]
    n_pooled = widths.count(None)
    fixed = sum(width for width in widths if width is not None)
    fixed += marks * sum(width != 0 for width in widths)
    room = _ROOM * n_rows * Limits().parameter_share - 1 - fixed
    named = int(min(max(room / n_pooled, 1), NAMED_LEVELS)) if n_pooled else 0
    return fixed + n_pooled * named, named


def _width(profile: Profile) -> int | None:
    """The number of features that a column becomes; None where its labels are pooled."""
    if _left_out(profile):
        return 0
    if profile.years or profile.numbers is not None:
        return 1
    return None if _is_pooled(profile) else len(profile.labels) - 1


def _usual(profile: Profile) -> list[str]:
    """Labels that do not identify a few people, the commonest first: a study file is no secret."""
    cell = Limits().minimum_cell
    return [label for label, count in profile.labels.most_common() if count >= cell]


def _is_pooled(profile: Profile) -> bool:
    return len(profile.labels) > MOST_LEVELS or len(_usual(profile)) < len(profile.labels)


def _left_out(profile: Profile) -> str:
    """Why a column is not a feature; empty if it may be one."""
    if len(profile.labels) < 2:
        return "the same in every row"
    if profile.is_id:
        return "an id, which is no feature"
    if profile.is_called(OUTCOME_WORDS):
        return "an outcome, too, by its name"
    has_labels = profile.numbers is None and profile.years is None
    return "labels of a few rows each" if has_labels and not _usual(profile) else ""


def _feature(profile: Profile, named_levels: int) -> str:
    key = toml_key(profile.name)
    if why := _left_out(profile):
        return f"# {key}: {why}"
    if profile.years:
        rule = toml_text(f"days since {profile.years[0]}-01-01")
        return f'{key} = {rule}  # {CONFIRM}: or "weekday", "month", "year"'
    if profile.numbers is not None:
        levels = _in_order(profile)
        is_code = 2 < len(levels) <= FEW_CODES and len(_usual(profile)) == len(levels)
        question = f"  # {CONFIRM}: a number, or the levels {_levels(levels)}?" if is_code else ""
        return f'{key} = "number"{question}'
    if not _is_pooled(profile):
        return f"{key} = {_levels(_in_order(profile))}"
    named = _usual(profile)[:named_levels]
    n_pooled = len(profile.labels) - len(named)
    question = f"which levels have a name of their own? {n_pooled:,} others have none"
    return f'{key} = {{ levels = {_levels(named)}, others = "other" }}  # {CONFIRM}: {question}'
