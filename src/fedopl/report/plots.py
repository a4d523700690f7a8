"""The report's figures one by one, as matplotlib figures."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedopl.base.errors import OptionError
from fedopl.report.figures.colours import CSS_OF, PAPER
from fedopl.report.figures.drawing import short
from fedopl.report.parts import Folded, Key, Part, Picture, Section, Text
from fedopl.report.sections.action_overlap import action_overlap
from fedopl.report.sections.by_client import by_client
from fedopl.report.sections.decisions import decisions
from fedopl.report.sections.held_out_values import held_out_values
from fedopl.results.record import Record

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
