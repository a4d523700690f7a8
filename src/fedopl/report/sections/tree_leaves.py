"""A tree: its drawing, its leaves, and how it was found."""

from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Leaf
from fedopl.policies.trees.tree_plan import Restriction
from fedopl.report.action_colours import colour_places
from fedopl.report.explain.explain_tree import (
    how_good,
    is_searched,
    moved_thresholds,
)
from fedopl.report.explain.leaf_words import (
    ACROSS,
    LeafInWords,
    leaf_sentences,
    leaf_values_by_fold,
    leaves_in_words,
    on_missing,
    second_thoughts,
    with_flags,
)
from fedopl.report.explain.learning_words import caution_words
from fedopl.report.figures.drawing import WIDTH
from fedopl.report.figures.tree_figure import Ending, tree_chart
from fedopl.report.parts import Folded, Heading, Part, Picture, Points, Table, Text, folded_if_long
from fedopl.report.words.numbers import count, listed, percent, plain, plural, whole_percent
from fedopl.report.words.policy_labels import OutcomeWords, opened
from fedopl.results.record import Record
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.study.study import Study

_MOST_ACTIONS = 4  # with a column each; more are in a table of their own
_MOST_SHOWN = 16  # leaves before the table is folded
_MOST_WORDED = 8  # leaves read out to those who do not see the figure
_NO_VALUE = "–"


def tree_parts(record: Record, policy: TreePolicy) -> tuple[Part, ...]:
    """The questions, the leaves, and how the tree was found."""
    policy = with_flags(policy, record)
    leaves = leaves_in_words(policy, record)
    return (
        Heading("The questions it asks"),
        Text(_reading(policy, leaves)),
        *_drawn(record, policy, leaves),
        *_tables(record, leaves),
        *_judged(record, leaves),
        *search_parts(record),
    )


def _reading(policy: TreePolicy, leaves: list[LeafInWords]) -> str:
    if isinstance(policy.root, Leaf):
        return " ".join(leaf_sentences(policy, leaves))
    asks = "one question. It ends"
    if policy.depth > 1:
        asks = f"{policy.depth} questions at most, one after the other. They end"
    who = (
        "everybody who may get it gets the same"
        if policy.permissions
        else "everybody gets the same"
    )
    words = f"The policy asks {asks} in {len(leaves)} leaves; in each, {who}."
    return " ".join([words, *on_missing(policy)])


def _drawn(record: Record, policy: TreePolicy, leaves: list[LeafInWords]) -> tuple[Picture, ...]:
    if isinstance(policy.root, Leaf):
        return ()
    places = colour_places(record)
    shares = ["" if leaf.share is None else whole_percent(leaf.share) for leaf in leaves]
    endings = [
        Ending(action=leaf.action, note=share, colour=places[leaf.action])
        for leaf, share in zip(leaves, shares, strict=True)
    ]
    drawing = tree_chart("tree", policy, endings)
    caption = "The questions from left to right; each leaf has the colour of its action"
    caption += ", and its share of people." if leaves[0].share is not None else "."
    words = leaf_sentences(policy, leaves)
    rest = len(words) - _MOST_WORDED
    more = f" {rest} more leaves are in the table." if rest > 0 else ""
    return (
        Picture(
            name="tree",
            drawing=drawing,
            label=f"A tree of questions. {' '.join(words[:_MOST_WORDED])}{more}",
            caption=caption
            + " What is cut off is written out in the table." * ("…" in drawing.svg),
            width=round(drawing.width, 2) if drawing.width > WIDTH else None,
        ),
    )


def _tables(record: Record, leaves: list[LeafInWords]) -> tuple[Part, ...]:
    all_leaves = f"All {len(leaves)} leaves as a table"
    if leaves[0].share is None:
        table = Table(
            caption="The leaves, and what people get there",
            headers=("Who", "Gets"),
            rows=tuple((_unbroken(leaf.who), leaf.action) for leaf in leaves),
            text_columns=(1,),
            long_names=True,
        )
        why = Text(f"No client reported how people divide between the leaves{_why_not(record)}.")
        return (why, folded_if_long(table, _MOST_SHOWN, all_leaves))
    is_across = record.study.evaluation.is_cross_fitted
    few = is_across or record.study.n_actions <= _MOST_ACTIONS
    table = _table(record, leaves, every_action=few)
    parts: list[Part] = [folded_if_long(table, _MOST_SHOWN, all_leaves)]
    if not few:
        whole = _table(record, leaves, every_action=True)
        parts.append(Folded(summary="Every action in every leaf", parts=(whole,)))
    means = "Values are means over held-out rows of a leaf, with their standard errors."
    if is_across:
        means = leaf_values_by_fold(OutcomeWords.of(record.study).name)
    note = Text(
        f"{means} Shares "
        "of people are weighted by the mixture. What a client leaves out because few of its rows "
        f"are in a leaf is divided alike between those leaves. {_NO_VALUE} means that no client "
        "could "
        "report a value; ? means that rows are too few, or too alike, to estimate its error.",
        quiet=True,
    )
    return (*parts, note)


def _why_not(record: Record) -> str:
    if record.study.evaluation.refits:
        return ": they were asked of the tree that was valued, and this one has all rows"
    if not record.study.evaluation.claims_values:
        return ": no rows were held out"
    return "" if record.study.evaluation.describe else ": they were not asked"


def _table(record: Record, leaves: list[LeafInWords], *, every_action: bool) -> Table:
    outcome, plan = OutcomeWords.of(record.study), record.study.evaluation
    names = ACROSS if plan.is_cross_fitted else {name: name for name in record.study.actions}
    columns = tuple(names.values()) if every_action else ("Its value", "Best other")
    rows = [
        (
            _unbroken(leaf.who),
            percent(leaf.share or 0.0),
            count(leaf.n_rows),
            leaf.action,
            *([_value(leaf, a) for a in names] if every_action else _chosen_and_other(leaf)),
        )
        for leaf in leaves
    ]
    return Table(
        caption=f"The leaves: expected {outcome.name} per decision ({outcome.better}) "
        "± standard error",
        headers=("Who", "Share of people", opened(plan.valued("rows")), "Gets", *columns),
        rows=tuple(rows),
        text_columns=(3,),
        long_names=True,
    )


def _unbroken(who: str) -> str:
    """The text without line breaks between a sign and its number."""
    return who.replace("≤ ", "≤\u00a0").replace("> ", ">\u00a0")


def _value(leaf: LeafInWords, action: str) -> str:
    return leaf.value(action) if action in leaf.values else _NO_VALUE


def _chosen_and_other(leaf: LeafInWords) -> tuple[str, str]:
    other = next((action for action in leaf.values if action != leaf.action), None)
    best = _NO_VALUE if other is None else f"{other}\n{_value(leaf, other)}"
    return _value(leaf, leaf.action), best


def _judged(record: Record, leaves: list[LeafInWords]) -> tuple[Part, ...]:
    thoughts = second_thoughts(leaves)
    if not thoughts:
        return ()
    first, *more = thoughts
    if more and record.study.tree.allowed:
        first += " Some of these actions may not have been allowed there."
    return (Text(first), *((Points(tuple(more)),) if more else ()))


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
