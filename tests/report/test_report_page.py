import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest

import fedopl
from fedopl.report.page import render, write_report
from fedopl.report.sections.by_client import by_client
from fedopl.report.sections.mixture_weights import mixture_weights

FIGURES = ("values", "gains", "clients", "weights", "split", "groups", "overlap")
ALL = ("run", "lower", "finite", "hostile", "many", "tree", "deep", "apart")
# What speaks for an action is drawn as weights, as a tree, or not at all.
INSTEAD_OF_WEIGHTS = {"finite": set(), "tree": {"tree"}, "deep": {"tree"}}
# How clients differ is drawn where there are several; the rest, where they were asked.
JOINING = {"finite": set(), "apart": {"shifts", "path", "path-1", "ascent", "ascent-weights"}}
VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Tags in order, and whether they are nested as they should be."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(params=ALL)
def text(request, html_of):
    return html_of(request.param)


@pytest.mark.parametrize("name", ["run", "hostile"])
def test_the_same_record_gives_the_same_bytes(name, html_of, request, tmp_path):
    path = write_report(request.getfixturevalue(name), tmp_path / "deep" / "report.html")
    assert path.read_bytes() == html_of(name).encode()


def test_tags_are_nested_and_ids_are_unique(text):
    page = Page(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    inside = {value for _, at in page.tags for value in at.values() if value}
    used = {found for value in inside for found in re.findall(r"^(?:url\()?#([^)]+)\)?$", value)}
    assert used <= set(page.ids)


def test_nothing_is_loaded_and_no_name_becomes_markup(text):
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "b", "form", "base"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), tag
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("name", ALL)
def test_every_figure_is_there_with_words(name, html_of):
    own = INSTEAD_OF_WEIGHTS.get(name, {"weights"})
    expected = set(FIGURES) - {"weights"} | own | JOINING.get(name, {"shifts"})
    page = Page(html_of(name))
    assert {value for value in page.ids if value.startswith("figure-")} == {
        f"figure-{name}" for name in expected
    }
    labels = [at["aria-label"] for _, at in page.tags if at.get("role") == "img"]
    assert len(labels) == len(expected)
    assert all(len(label) > 20 for label in labels)


def test_figures_take_their_colours_from_the_page(text):
    figures = "".join(re.findall(r"<svg.*?</svg>", text, re.S))
    assert not re.findall(r"#[0-9a-f]{6}\b", figures)
    assert "font-family" not in figures


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast_enough(scheme):
    colours = _colours(scheme)
    actions = [f"action-{place}" for place in range(1, 8)]
    pairs = [("ink", back) for back in ("page", "soft", "caution", *actions)]
    pairs += [(front, back) for front in ("quiet", "accent") for back in ("page", "soft")]
    for front, back in pairs:
        assert _contrast(colours[front], colours[back]) >= 4.5, (front, back)
    sources = [f"source-{place}" for place in range(1, 4)]
    for mark in ("better", "worse", "unclear", "caution-edge", *sources):
        assert _contrast(colours[mark], colours["page"]) >= 4.5, mark


def _colours(scheme):
    style = (files("fedopl.report") / "page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.S)
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light if scheme == "light" else dark))


def _contrast(one, other):
    """The ratio of WCAG 2.2."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_names_are_shown_as_they_are(html_of):
    text = html_of("hostile")
    assert "&lt;script&gt;alert(&#39;c&#39;)&lt;/script&gt;" in text
    assert "$x_1$" in text


def test_letters_that_control_are_not_let_through(run):
    text = render(replace(run, study=run.study.model_copy(update={"name": "\u202eevil\x07"})))
    assert "�evil�" in text
    assert not set(text) & {"\u202e", "\x07"}


def test_a_curve_is_drawn_where_rounds_have_a_loss(run):
    rounds = tuple(replace(run.rounds[0], loss=1 / place) for place in range(1, 6))
    assert 'id="figure-curve"' in render(replace(run, rounds=(*run.rounds, *rounds)))


def test_too_many_clients_are_drawn_by_their_extremes(many):
    section = by_client(many)
    picture = next(part for part in section.parts if part.kind == "picture")
    assert "Drawn are the 30 of 40 clients" in picture.caption
    table = next(part for part in section.parts if part.kind == "table")
    assert len(table.rows) == 40


def test_the_skewness_is_shown_with_what_it_means(many, lower):
    assert "the smallest possible" in mixture_weights(lower).parts[1].text
    skewed = replace(many, rows={name: 60 + 10 * place for place, name in enumerate(many.rows)})
    assert "are worth as much as" in mixture_weights(skewed).parts[1].text


def test_one_client_that_reported_next_to_nothing_is_reported_on():
    alone = fedopl.learn(
        {"north": _two_arms()},
        basis="linear",
        evaluation=fedopl.EvaluationPlan(share=0, describe=False),
    )
    text = render(alone)
    assert "they were not asked" in text
    assert "No recommendation" in text


def _two_arms():
    rng = np.random.default_rng(0)
    return fedopl.LoggedData(rng.normal(size=(60, 2)), rng.integers(0, 2, 60), rng.normal(size=60))
