"""The page: sections in order, rendered by the template into one self-contained file."""

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedopl.base.files import write_atomically
from fedopl.report.at_target import at_target
from fedopl.report.cautions import cautions
from fedopl.report.guardrails_kept import guardrails_kept
from fedopl.report.parts import Section
from fedopl.report.recommending import key_figures, recommend
from fedopl.report.sections.action_overlap import action_overlap
from fedopl.report.sections.by_client import by_client
from fedopl.report.sections.decisions import decisions
from fedopl.report.sections.disclosed import disclosed
from fedopl.report.sections.held_out_values import held_out_values
from fedopl.report.sections.joining import joining
from fedopl.report.sections.mixture_weights import mixture_weights
from fedopl.report.sections.privacy_promise import privacy_promise
from fedopl.report.sections.resting_on_clients import resting_on_clients
from fedopl.report.sections.settings import settings
from fedopl.report.sections.training import training
from fedopl.report.who_is_in import who_is_in
from fedopl.report.within_budget import within_budget
from fedopl.report.words.glossary import glossary
from fedopl.report.words.numbers import printable
from fedopl.results.record import Record

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
    found: tuple[Section | None, ...] = tuple(
        section(record) for section in _SECTIONS if section not in left_out
    )
    sections = tuple(section for section in found if section is not None)
    return environment.get_template("page.html.jinja").render(
        title=record.study.name,
        recommendation=recommend(record),
        figures=key_figures(record),
        cautions=cautions(record),
        sections=sections,
        glossary=glossary(record.study),
        markup=Markup,
    )


def _fit_to_show(value: object) -> object:
    """The text without control characters, which names may hold, or line breaks before per cent."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value).replace(" %", "\u00a0%")
    return value
