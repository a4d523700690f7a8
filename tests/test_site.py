"""The site: all pages are in it, it asks nobody else for anything, and a phone can show it."""

import threading
import tomllib
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import api_page
import build_site
import pytest

import fedopl
from browsing import PHONE, chromium, violations

# A wide table, a long program, the API, a figure, a transcript, a notebook: what may be too wide.
NARROW = (
    *("", "docs/tutorial/", "docs/api/", "docs/messages/", "docs/theory-to-code/"),
    *("docs/reference/", "docs/deployment/", "examples/your-own-policy/", "benchmarks/"),
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_words):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("zensical", reason="zensical is not installed")
    pytest.importorskip("mkdocstrings_handlers.python", reason="mkdocstrings is not installed")
    return build_site.build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(site):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def phone(address):
    """A page of a phone's width; whatever it asked others for is an error."""
    elsewhere = []
    with chromium() as browser:
        page = browser.new_page(viewport=PHONE)
        page.set_default_timeout(120_000)  # on a busy machine
        page.on("request", lambda asked: elsewhere.append(asked.url))
        yield page
    own = (address, "data:", f"blob:{address}")
    assert [url for url in elsewhere if not url.startswith(own)] == []


def named(entries):
    """The pages that the navigation names."""
    for entry in entries:
        (below,) = entry.values()
        yield from [below] if isinstance(below, str) else named(below)


def test_the_navigation_names_every_page_once(tmp_path):
    settings = tomllib.loads((build_site.HERE / "zensical.toml").read_text(encoding="utf-8"))
    build_site.gather(tmp_path)
    pages = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")]
    # If not: a line in website/zensical.toml
    assert sorted(named(settings["project"]["nav"])) == sorted(pages)


def test_the_api_reference_has_every_public_name_once():
    shown = [name for names in api_page.GROUPS.values() for name in names]
    assert sorted(shown) == sorted(fedopl.__all__)


def test_fields_are_told_with_what_the_code_says_of_them():
    (depth,) = (row for row in api_page.fields_of(fedopl.Tree) if row.startswith("| `depth` |"))
    assert depth == f"| `depth` | `2` | {fedopl.Tree.model_fields['depth'].description} |\n"
    assert "| `best_arm` | required | – |\n" in [*api_page.fields_of(fedopl.Run)]
    assert [*api_page.fields_of(fedopl.learn)] == []


class Fetched(HTMLParser):
    """What a browser loads for a page; links are for people to follow."""

    def __init__(self, text):
        super().__init__()
        self.urls = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.urls += [given[name] for name in ("src", "srcset", "poster") if given.get(name)]
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.urls.append(given["href"])


def test_no_page_loads_anything_from_elsewhere(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 40
    for page in pages:
        urls = Fetched(page.read_text(encoding="utf-8")).urls
        assert urls
        assert [url for url in urls if url.partition(":")[0] in ("http", "https")] == [], page
        assert [url for url in urls if url.startswith("//")] == [], page


def test_everything_a_page_loads_is_there(site):
    for page in site.rglob("*.html"):
        for url in Fetched(page.read_text(encoding="utf-8")).urls:
            path = unquote(urlsplit(url).path)
            if path and not url.startswith("data:"):
                home = site if path.startswith("/") else page.parent
                assert (home / path.lstrip("/")).exists(), f"{page}: {url}"


class Paragraphs(HTMLParser):
    """The lines of all paragraphs."""

    def __init__(self, text):
        super().__init__()
        self.lines, self.inside = [], False
        self.feed(text)

    def handle_starttag(self, tag, _attributes):
        self.inside = self.inside or tag == "p"
        if tag == "p":
            self.lines.append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "p"

    def handle_data(self, data):
        if self.inside:
            first, *others = data.split("\n")
            self.lines[-1] += first
            self.lines += others


def test_every_page_became_one_and_no_markup_is_left_in_its_text(site):
    """Lists and tables need an empty line above them here, which GitHub does not ask for."""
    gathered, left = site.parent / "pages", []
    for path in sorted(gathered.rglob("*.md")):
        folder = (site / path.relative_to(gathered)).with_suffix("")
        home = folder.parent if path.name == "README.md" else folder
        lines = Paragraphs((home / "index.html").read_text(encoding="utf-8")).lines
        marks = ("- ", "* ", "| ", "```", "#", "::: ")
        left += [(path.name, line) for line in lines if line.startswith(marks)]
    assert left == []


@pytest.mark.parametrize("path", NARROW)
def test_a_page_does_not_scroll_sideways_on_a_phone(phone, address, path):
    phone.goto(f"{address}{path}")
    assert phone.locator("h1").first.is_visible()
    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


# Of each kind of content one page that is not long, as axe looks at every element.
@pytest.mark.parametrize("path", ["", "docs/tutorial/", "examples/your-own-policy/"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_a_page(phone, address, path, scheme):
    phone.emulate_media(color_scheme=scheme)
    phone.goto(f"{address}{path}")
    assert violations(phone) == []


def test_search_finds_a_page_and_leads_there(phone, address):
    phone.goto(f"{address}docs/glossary/", wait_until="networkidle")
    phone.locator("label.md-header__button[for=__search]").click()
    # The box is in a tree of its own, to which the keyboard goes.
    phone.wait_for_function("document.activeElement.shadowRoot?.activeElement?.tagName === 'INPUT'")
    phone.keyboard.insert_text("overlap")  # at once, so that nothing is found for its beginning
    phone.locator("a", has_text="fedopl.overlap").first.wait_for(state="attached")
    phone.keyboard.press("Enter")
    phone.wait_for_url("**/docs/api/**")
