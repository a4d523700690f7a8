"""Overlap: whether each action was taken often enough, by enough kinds of people."""

from itertools import pairwise

from fedopl.report.explain.hardly_tried import hardly_words
from fedopl.report.explain.learning_words import limited_words
from fedopl.report.explain.support_levels import (
    FAIR,
    THIN,
    ActionSupport,
    chance_names,
    rare_chance,
    supports,
)
from fedopl.report.figures.shares import Shares, strips
from fedopl.report.fit_cautions import fit_parts
from fedopl.report.parts import Part, Picture, Section, Table, Text, folded_if_long
from fedopl.report.words.numbers import count, listed, percent, plural
from fedopl.report.words.region_words import support_in_regions
from fedopl.results.record import Record

_MOST_DRAWN = 24  # strips in the figure


def action_overlap(record: Record) -> Section:
    """The section, or one sentence if no client answered."""
    found = supports(record)
    parts: tuple[Part, ...] = (Text("The clients did not report how likely actions were."),)
    if found:
        table = _table(found, rare_chance(record.study.n_actions))
        said = (support_in_regions(record), limited_words(record), hardly_words(record))
        limited = tuple(Text(words) for words in said if words)
        parts = (Text(_intro()), Text(_words(found)), *limited, _picture(found), table)
    parts += fit_parts(record)
    return Section(name="overlap", title="Does the past support it?", parts=parts)


def _intro() -> str:
    return (
        "What an action would have done can only be learned from people who got it. Those who "
        "got it although it was unlikely represent many who did not. They get large weights, "
        "which makes estimates imprecise. Effective rows say how many rows of ordinary weight an "
        f"action's estimate is worth: {FAIR} or more are good, fewer than {THIN} are thin."
    )


def _words(found: list[ActionSupport]) -> str:
    thin = [f"'{s.action}' at {s.client}" for s in found if s.effective_rows < THIN]
    least = min(found, key=lambda s: s.effective_rows)
    if not thin:
        return (
            f"Every action is supported at every client that reported. The weakest is "
            f"'{least.action}' at {least.client}, with {count(least.effective_rows)} effective "
            "rows."
        )
    how_many = plural(len(thin), "combination of action and client is", "combinations are")
    return (
        f"{how_many} thin: {listed(thin)}. There the estimates rest on models and on other clients."
    )


def _picture(found: list[ActionSupport]) -> Picture:
    weakest = sorted(found, key=lambda s: s.effective_rows)[:_MOST_DRAWN]
    # Back in the order of clients, so that each client has one heading.
    drawn = [s for s in found if s in weakest]
    headings = [
        drawn[0].client,
        *(b.client if b.client != a.client else "" for a, b in pairwise(drawn)),
    ]
    items = [
        Shares(label=s.action, shares=s.chances, note=count(s.effective_rows), heading=heading)
        for s, heading in zip(drawn, headings, strict=True)
    ]
    axis = "% of rows, by how likely the action was, in %"
    drawing = strips("overlap", items, chance_names(), axis, "eff. rows")
    caption = (
        "How likely each action was for a client's rows, in per cent of the rows (darker is more), "
        "and its effective rows."
    )
    if len(drawn) < len(found):
        caption += f" Drawn are the {len(drawn)} of {len(found)} with the fewest effective rows."
    return Picture(
        name="overlap", drawing=drawing, label=f"{caption} {_words(found)}", caption=caption
    )


def _table(found: list[ActionSupport], rare: float | None) -> Part:
    cuts = [rare] if rare else []
    rows = [
        (
            s.client,
            s.action,
            count(s.taken),
            count(s.effective_rows),
            *(percent(s.share_below(cut)) for cut in cuts),
            s.word,
        )
        for s in found
    ]
    below = [f"Chance below {percent(cut)}" for cut in cuts]
    table = Table(
        caption="Support of each action at each client",
        headers=("Client", "Action", "Took it", "Effective rows", *below, "In words"),
        rows=tuple(rows),
        text_columns=(1, 4 + len(below)),
    )
    return folded_if_long(table, _MOST_DRAWN, "All as a table")
