"""The page, rendered into one self-contained file, and its figures one by one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedopl.base.errors import OptionError
from fedopl.base.files import write_atomically
from fedopl.report.at_target import at_target
from fedopl.report.cautions import cautions
from fedopl.report.figures.colours import CSS_OF, PAPER
from fedopl.report.figures.drawing import short
from fedopl.report.parts import Folded, Key, Part, Picture, Section, Text
from fedopl.report.recommending import key_figures, recommend
from fedopl.report.sections.action_overlap import action_overlap
from fedopl.report.sections.by_client import by_client
from fedopl.report.sections.decisions import decisions
from fedopl.report.sections.disclosed import disclosed, privacy_promise
from fedopl.report.sections.held_out_values import held_out_values
from fedopl.report.sections.joining import joining
from fedopl.report.sections.limits_kept import guardrails_kept, within_budget
from fedopl.report.sections.mixture_weights import mixture_weights
from fedopl.report.sections.resting_on_clients import resting_on_clients
from fedopl.report.sections.training import settings, training, who_is_in
from fedopl.report.words.numbers import printable
from fedopl.results.record import Record
from fedopl.study.study import Study

_SECTIONS = (
    who_is_in,
    guardrails_kept,
    within_budget,
    held_out_values,
    at_target,
    by_client,
    resting_on_clients,
    joining,
    decisions,
    action_overlap,
    training,
    mixture_weights,
    disclosed,
    privacy_promise,
    settings,
)
# Sections that need answers about the policy; after clients joined or left, not all clients gave
# any.
_OF_ALL = (held_out_values, by_client, resting_on_clients, joining, action_overlap)


def write_report(record: Record, path: str | Path) -> Path:
    """Write the report as one HTML file; the same record gives the same bytes."""
    path = Path(path)
    write_atomically(path, render(record).encode())
    return path


def render(record: Record) -> str:
    """The report as HTML."""
    environment = Environment(
        loader=PackageLoader("fedopl.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,  # a misspelled name fails instead of leaving a gap
        finalize=_fit_to_show,
    )
    left_out = _OF_ALL if record.membership and not record.values.rows else ()
    asked = [section(record) for section in _SECTIONS if section not in left_out]
    return environment.get_template("page.html.jinja").render(
        title=record.study.name,
        recommendation=recommend(record),
        figures=key_figures(record),
        cautions=cautions(record),
        sections=[section for section in asked if section is not None],
        glossary=glossary(record.study),
        markup=Markup,
    )


def _fit_to_show(value: object) -> object:
    """The text without control characters, which names may hold, or line breaks before per cent."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value).replace(" %", "\u00a0%")
    return value


_HELD_OUT = {
    "Held-out rows": "Rows set apart before learning and used only to measure values. A policy "
    "looks better than it is on rows it was learned from.",
}
_ACROSS_FOLDS = {
    "Rows valued, fold by fold": "Every row is valued by a policy that was learned without its "
    "fold, since a policy looks better than it is on rows it was learned from. The values are "
    "those of the way of learning; the policy itself was learned from all rows.",
}
_CANDIDATES = {
    "Rows valued, fold by fold": "Every candidate is valued on all rows. What the best one gains "
    "is valued in each fold by the candidate that came out best in the others, since a policy "
    "looks better than it is on rows it was chosen by.",
}


def glossary(study: Study) -> dict[str, str]:
    """The terms that a report on this study uses."""
    valued = _HELD_OUT
    if study.evaluation.is_cross_fitted:
        valued = _CANDIDATES if study.policy.compares_candidates else _ACROSS_FOLDS
        valued = {} if study.evaluates else valued
    return {**_FIRST, **valued, **_REST}


_FIRST = {
    "Policy": "A rule that says which action somebody gets, given what is known about them. The "
    "learned policy is one rule for all clients, learned from what all of them logged.",
    "Client": "One party with rows of its own, for example a hospital. Its rows never leave it.",
    "Tree and leaf": "A tree is a policy that asks one question after the other. Where its "
    "questions end there is a leaf: a group of people who all get the same action.",
    "Grid and cell": "The thresholds that a tree may ask about, agreed on before it is searched "
    "for. Two columns' thresholds make a table of cells; clients report sums over cells, and "
    "merge bins of a few rows with their neighbours.",
    "Value": "What one can expect per decision if everybody were treated by the policy. It is "
    "estimated from logged decisions, correcting for who got what and why.",
    "Gain": "The difference in value between two policies on the same rows. Positive is better.",
    "95 % interval": "A range that would cover the truth in 95 of 100 such studies. Where it "
    "touches zero, these rows cannot show which of the two policies is better.",
}
_REST = {
    "Each client's own policy": "The policy a client would have learned from its rows alone, "
    "without the others.",
    "Propensity, or chance": "How likely somebody was to get an action, as things were decided in "
    "the past.",
    "Effective rows": "How many rows of ordinary weight an estimate is worth, once unlikely ones "
    "count for more.",
    "Mixture (λ) and skewness": "How much each client counts, and how many times fewer rows it is "
    "worth to count them so.",
    "Minimax": "Weights for which the client that loses most loses as little as possible. Step by "
    "step, the client that loses most gets more weight.",
    "Regret, and its bound": "How far a policy falls short of the best of its kind. It cannot be "
    "measured without the truth; theorems bound it, up to constants that they leave open.",
    "Shift": "That a client differs from the others: in whom it sees (covariates), in how it "
    "decided (propensities), or in what comes of it (outcomes).",
    "Discrepancy": "How much the values of policies at one client can differ from their values "
    "in the mixture; it is measured at policies learned to show it.",
    "Total variation and divergence (KL)": "Two measures of how far apart distributions are. The "
    "first goes from 0, the same, to 1, entirely apart; the second from 0 without end.",
    "Value of information": "What joining is worth to a client: as measured, the gain over its "
    "own policy; by the bounds (𝒱), its bound alone less the bound together less the shift.",
    "Coalition": "Some of the clients, learning together without the others. It is individually "
    "stable if no member would do better alone.",
}


_MARKERS = {"●": "o", "○": "o", "■": "s"}
# Figures by name: their section, and the possible names of their picture there.
_DRAWN_IN: dict[str, tuple[Callable[[Record], Section], tuple[str, ...]]] = {
    "values": (held_out_values, ("values",)),
    "gains": (held_out_values, ("gains",)),
    "clients": (by_client, ("clients",)),
    "policy": (decisions, ("weights", "curves", "tree")),
    "decisions": (decisions, ("groups", "split")),
    "overlap": (action_overlap, ("overlap",)),
}


def figure_of(record: Record, what: str) -> Figure:
    """One of the report's figures; if it has none, an error with the report's explanation."""
    section_of, names = _DRAWN_IN[what]
    section = section_of(record)
    pictures = {picture.name: picture for picture in _pictures(section.parts)}
    for name in names:
        if name in pictures:
            figure: Figure = pictures[name].drawing.figure()
            _add_legend(figure, pictures[name].keys)
            return figure
    said = " ".join(part.text for part in section.parts if isinstance(part, Text))
    raise OptionError(f"plot_{what}: there is nothing to draw. {said}".strip())


def _add_legend(figure: Figure, keys: Sequence[Key]) -> None:
    """Add the legend below the figure, as on the page."""
    colours = {css: PAPER[colour] for colour, css in CSS_OF.items() if colour in PAPER}
    entries = [
        Line2D([], [], ls="", marker=_MARKERS[key.mark], color=colours[f"var(--{key.colour})"])
        for key in keys
    ]
    for entry, key in zip(entries, keys, strict=True):
        if key.mark == "○":
            entry.set_markerfacecolor("none")
    if entries:
        texts = [short(key.text, 60) for key in keys]
        figure.legend(entries, texts, loc="upper left", bbox_to_anchor=(0, 0), frameon=False)


def _pictures(parts: Iterable[Part]) -> Iterator[Picture]:
    for part in parts:
        if isinstance(part, Picture):
            yield part
        elif isinstance(part, Folded):
            yield from _pictures(part.parts)
