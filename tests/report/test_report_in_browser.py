"""The page in a real browser: in the light and the dark, on a phone, in print, by keyboard."""

from itertools import pairwise

import pytest

from browsing import DESK, PHONE, chromium, violations

PAGES = ("lower", "hostile", "deep", "apart", "large")
# Colours are all that differs in the dark.
DARK_RULES = {"runOnly": ["color-contrast"]}


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module", params=PAGES)
def address(request, html_of, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html_of(request.param), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def visit(browser, address):
    contexts, complaints = [], []

    def _visit(viewport=DESK, scheme="light"):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: _note_request(request.url, address, complaints))
        page.goto(address)
        return page

    yield _visit
    for context in contexts:
        context.close()
    assert complaints == []


def _note_request(url, address, complaints):
    if url != address and not url.startswith("data:"):
        complaints.append(f"asked for {url}")


def unfold(page):
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_never_scrolls_sideways_and_figures_stay_inside(visit, viewport):
    page = visit(viewport)
    unfold(page)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= viewport["width"]
    figures = page.locator("figure [role=img]")
    assert figures.count() >= 6
    for place in range(figures.count()):
        assert figures.nth(place).is_visible()
        box = figures.nth(place).bounding_box()
        assert box["height"] > 40
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= viewport["width"]


def test_letters_in_figures_can_be_read_on_a_phone_and_none_lies_outside(visit):
    page = visit(PHONE)
    unfold(page)
    sizes, outside = page.evaluate(
        """() => {
            const texts = [...document.querySelectorAll('figure svg text')];
            const scale = svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            const edge = t => [t.getBoundingClientRect(), t.closest('svg').getBoundingClientRect()];
            return [
                Math.min(...texts.map(t => parseFloat(t.style.fontSize) * scale(t.closest('svg')))),
                texts.filter(t => { const [a, b] = edge(t);
                    return a.left < b.left - 6 || a.right > b.right + 6 || a.top < b.top - 3
                        || a.bottom > b.bottom + 3; }).map(t => t.textContent),
            ];
        }"""
    )
    assert sizes >= 7.5
    assert outside == []


@pytest.mark.parametrize("address", ["lower", "deep", "large"], indirect=True)
@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_no_cell_of_a_table_with_few_columns_is_cut_off(visit, viewport):
    page = visit(viewport)
    unfold(page)
    few, cut = page.evaluate(
        """() => {
            const few = [...document.querySelectorAll('.scroll')]
                // A hash is one word of 64 letters.
                .filter(s => s.querySelectorAll('thead th').length <= 4
                    && !/[0-9a-f]{64}/.test(s.textContent));
            const cut = few.filter(s => s.scrollWidth > s.clientWidth + 1);
            return [few.length, cut.map(s => [s.ariaLabel, s.scrollWidth, s.clientWidth])];
        }"""
    )
    assert few >= 3
    assert cut == []


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_no_two_texts_of_a_figure_overlap(visit, viewport):
    page = visit(viewport)
    unfold(page)
    overlaps = page.evaluate(
        """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const texts = [...svg.querySelectorAll('text')].filter(t => t.textContent.trim())
                .map(t => [t.textContent, t.getBoundingClientRect()]);
            return texts.flatMap(([one, a], place) => texts.slice(place + 1)
                .filter(([, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > a.height / 4)
                .map(([other]) => [one, other]));
        })"""
    )
    assert overlaps == []


@pytest.mark.parametrize("address", ["lower", "deep", "apart", "large"], indirect=True)
@pytest.mark.parametrize(("scheme", "options"), [("light", {}), ("dark", DARK_RULES)])
def test_axe_finds_nothing_serious(visit, scheme, options):
    page = visit(scheme=scheme)
    unfold(page)
    assert violations(page, ("serious", "critical"), **options) == []


def test_headings_come_in_order_under_one_title(visit):
    levels = visit().evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_first_stop_of_the_keyboard_is_the_skip_link_and_it_leads_on(visit):
    page = visit()
    page.keyboard.press("Tab")
    first = page.locator(":focus")
    assert first.inner_text() == "Skip to the recommendation"
    assert first.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_everything_folded_is_open_in_print(visit):
    page = visit()
    assert page.locator("details table").count() > 0
    page.emulate_media(media="print")
    page.wait_for_function(
        """() => [...document.querySelectorAll('details table')]
            .every(table => table.checkVisibility({contentVisibilityAuto: true}))""",
        timeout=5_000,
    )
