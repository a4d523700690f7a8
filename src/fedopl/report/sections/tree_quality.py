"""How a tree was found: its grid and its rules."""

from fedopl.policies.trees.tree_plan import Restriction
from fedopl.report.explain.caution_words import caution_words
from fedopl.report.explain.explain_tree import (
    how_good,
    is_searched,
    moved_thresholds,
)
from fedopl.report.parts import Heading, Part, Points
from fedopl.report.words.numbers import count, listed, plain, plural
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.record import Record
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.study.study import Study


def search_parts(record: Record) -> tuple[Part, ...]:
    """What is known about the search; empty if the tree was given."""
    if not is_searched(record):
        return ()
    cautious = [words for words in [caution_words(record.policy, record)] if words]
    items = [how_good(record), *cautious, *_rules(record.study)]
    if record.tree:
        items.insert(1, _grid(record.study, record.tree) + _not_asked(record))
    if moved := moved_thresholds(record):
        changes = listed([f"“{before}” became “{now}”" for before, now in moved])
        items.insert(
            2,
            "Then clients reported, for narrow bins close to each threshold, what moving it "
            f"would gain: {changes}.",
        )
    return (Heading("How the tree was found"), Points(tuple(items)))


def _grid(study: Study, tree: TreeStatistics) -> str:
    """The number of questions to choose from, in words."""
    columns = [*zip(map(len, tree.grid.cuts), tree.grid.is_level, strict=True)]
    numbers = [n_cuts for n_cuts, is_level in columns if n_cuts and not is_level]
    levels = [n_cuts for n_cuts, is_level in columns if n_cuts and is_level]
    parts = []
    if numbers:
        parts.append(
            f"{plural(sum(numbers), 'threshold')} of {plural(len(numbers), 'column')} of numbers"
        )
    if levels:
        parts.append(f"{plural(sum(levels), 'level')} of {plural(len(levels), 'column')} of labels")
    agreed = ""
    if study.cut_columns:
        agreed = " Thresholds were agreed from counts in public bins."
    return f"The grid has {listed(parts) or 'nothing to ask about'}.{agreed}"


def _not_asked(record: Record) -> str:
    """The clients that did not help to set the grid."""
    joined = record.membership.joined if record.membership else []
    return f" This does not hold for {listed(joined)}, who joined later." if joined else ""


def _rules(study: Study) -> list[str]:
    plan, unit = study.tree, OutcomeWords.of(study).name
    rules = []
    if plan.columns:
        rules.append(f"It may ask about {listed(list(plan.columns), joint='or')} only.")
    if plan.minimum_leaf > 1:
        rules.append(
            f"A leaf holds at least {count(plan.minimum_leaf)} rows, of all clients together."
        )
    if plan.split_cost:
        rules.append(
            f"A question has to be worth more than {plain(plan.split_cost)} {unit} per decision."
        )
    return rules + [_allowed(group) for group in plan.allowed]


def _allowed(group: Restriction) -> str:
    who = f"is '{group.level}'"
    if group.at_most is not None:
        who = f"≤ {plain(group.at_most)}"
    elif group.above is not None:
        who = f"> {plain(group.above)}"
    actions = [f"'{action}'" for action in group.actions]
    return f"Where {group.column} {who}, only {listed(actions, joint='or')} may be chosen."
