"""A drafted study as text: the role of each column, with a question wherever it is a guess."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import quoted
from fedopl.base.toml_file import toml_key, toml_text
from fedopl.client.column_profiles import (
    ACTION_WORDS,
    LOWER_WORDS,
    OUTCOME_WORDS,
    PROPENSITY_WORDS,
    WEIGHT_WORDS,
    Profile,
    the_one,
)
from fedopl.client.disclosure.limits import Limits
from fedopl.client.drafted_basis import basis_lines, drafted_basis, fewest_terms
from fedopl.client.drafted_privacy import DraftedPrivacy, drafted_overlap
from fedopl.study.plans import NuisancePlan
from fedopl.study.private.privacy_plan import EXACT
from fedopl.study.study_check import MOST_TO_SCREEN

# Marks a line that a person has to confirm.
CONFIRM = "CONFIRM"
# A column with more labels than the first is not an action. A feature with more labels than the
# second is pooled, and at most the third keep a name.
MOST_ACTIONS, MOST_LEVELS, NAMED_LEVELS = 50, 20, 10
# The share of rows to count on, because folds are not all alike.
_ROOM = 0.8
# Rows with a missing feature are left out up to this share of rows. Beyond it, they are marked.
FEW_GAPS = 0.05
# A number with at most this many different values may be a code.
FEW_CODES = 6
NO_BASIS = "# No [basis], so all effects are linear. Terms for effects that bend"


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the person who asks for a draft already knows."""

    action: str | None = None  # the column of actions
    outcome: str | None = None
    client_column: str | None = None  # its values are the clients, all in one table
    private: bool | None = None  # noise hides rows; None: exact, and noise as a comment


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The role that each column seems to have."""

    action: str
    outcome: str
    propensity: str | None
    weight: str | None
    group: str | None

    @classmethod
    def guessed(cls, found: Mapping[str, Profile], hints: Hints) -> "Roles":
        """The roles, by names and values; an error if no name suggests an action or an outcome."""
        few = {n: p for n, p in found.items() if 2 <= len(p.labels) <= MOST_ACTIONS}
        action = _known(hints.action, found, "action") or the_one(few, ACTION_WORDS)
        varied = {
            n: p
            for n, p in found.items()
            if p.numbers is not None and len(p.labels) > 1 and n != action
        }
        outcome = _known(hints.outcome, found, "outcome") or the_one(varied, OUTCOME_WORDS)
        if action is None:
            raise OptionError(f"from: which column says what was done? --action; {_named(few)}")
        if outcome is None:
            raise OptionError(f"from: which column is the outcome? --outcome; {_named(varied)}")
        if outcome not in varied:
            raise DataError(f"from: '{outcome}' cannot be the outcome; expected numbers that vary")
        free = {n: p for n, p in found.items() if n not in (action, outcome)}
        called = {
            words: next((n for n, p in free.items() if p.is_called(words)), None)
            for words in (PROPENSITY_WORDS, WEIGHT_WORDS)
        }
        propensity, weight = called[PROPENSITY_WORDS], called[WEIGHT_WORDS]
        repeated = [name for name, profile in free.items() if profile.is_id and profile.repeats]
        return cls(
            action=action,
            outcome=outcome,
            propensity=propensity if propensity and free[propensity].is_within_01 else None,
            weight=weight if weight and free[weight].numbers is not None else None,
            group=next(iter(repeated), None),
        )

    @property
    def columns(self) -> set[str | None]:
        """All columns with a role; any other column may be a feature."""
        return {self.action, self.outcome, self.propensity, self.weight, self.group}


def _known(hint: str | None, found: Mapping[str, Profile], what: str) -> str | None:
    if hint is not None and hint not in found:
        raise OptionError(f"{what}: there is no column '{hint}'; {_named(found)}")
    return hint


def _named(columns: Iterable[str]) -> str:
    names = tuple(columns)
    return f"there are {quoted(names)}" if names else "there is none that could be"


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
    room = _Room.left_by(features, fewest, marks=marks)
    yield from (_feature(profile, room.named_levels) for profile in features)
    yield from (f"# {toml_key(name)} is not in every table" for name in only_somewhere)
    used = [profile for profile in features if not _left_out(profile)]
    drafted = _privacy(found, roles, used, sizes, private=private)
    privacy = drafted if private else None
    if privacy:
        yield from _private_basis(used, privacy)
        yield from privacy.lines(f"{CONFIRM}: ")
    else:
        yield from _basis(used, room, fewest)
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


def _privacy(
    found: Mapping[str, Profile],
    roles: Roles,
    features: Sequence[Profile],
    sizes: Sequence[int],
    *,
    private: bool | None,
) -> DraftedPrivacy | None:
    """Differential privacy for these tables; None where nobody wants it, or it cannot be had."""
    if private and roles.weight:
        raise OptionError(
            f"private: with differential privacy all rows weigh the same; take out '{roles.weight}'"
        )
    if private is False or roles.weight:
        return None
    counts = found[roles.action].labels.values()
    known = found[roles.propensity] if roles.propensity else None
    overlap = drafted_overlap(known, [count / sum(counts) for count in counts])
    person = found[roles.group] if roles.group else None
    return DraftedPrivacy.of(features, found[roles.outcome], person, overlap, sizes)


def _private_basis(features: Sequence[Profile], privacy: DraftedPrivacy) -> Iterator[str]:
    """Where numbers may bend, from public ranges and sizes alone."""
    likely = privacy.likely_values([p.name for p in features if p.numbers is not None])
    others = len(features) - len(likely)
    columns = {name: [values] for name, values in likely.items()}
    basis = drafted_basis(columns, most_terms=privacy.most_terms - others) if columns else None
    yield from basis_lines(basis, CONFIRM)
    if basis is None and (fewest := fewest_terms(columns)):
        most = max(math.floor(privacy.most_terms), 0)
        yield from ("", f"{NO_BASIS} would make")
        yield f"# {fewest + others} terms or more; with noise, rows are enough for {most}."


def _basis(features: Sequence[Profile], room: "_Room", fewest: int) -> Iterator[str]:
    """Where numbers may bend, with as many terms as the rows of every client allow."""
    numbers = {p.name: [p.numbers] for p in features if p.numbers is not None}
    terms_by_row = _ROOM * Limits().parameter_share
    others = room.n_features - len(numbers)
    # As values are cross-fitted, terms are looked for without each fold, and with all rows.
    n_screenings = (NuisancePlan().folds + 1) * (room.n_features <= MOST_TO_SCREEN)
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


@dataclass(frozen=True, kw_only=True)
class _Room:
    """The number of features, and what fits beside them."""

    n_features: int
    named_levels: int  # of each column whose labels are pooled

    @classmethod
    def left_by(cls, features: Sequence[Profile], n_rows: int, *, marks: bool) -> "_Room":
        """The room under the default limits of clients, of which the smallest has so many rows."""
        rows = _ROOM * n_rows
        widths = [_width(profile) for profile in features]
        n_pooled = widths.count(None)
        fixed = sum(width for width in widths if width is not None)
        fixed += marks * sum(width != 0 for width in widths)
        room = rows * Limits().parameter_share - 1 - fixed
        named = int(min(max(room / n_pooled, 1), NAMED_LEVELS)) if n_pooled else 0
        n_features = fixed + n_pooled * named
        return cls(n_features=n_features, named_levels=named)


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
