"""One small run that pages are made of, and a browser to look at them."""

import pytest

from browsing import DESK, chromium
from fedopl.engines.run import run
from fedopl.live.page_server import PageServer
from fedopl.live.run_page import RunPage
from fedopl.report.figures.drawing import Drawing
from fedopl.report.page import render
from tiny_study import write_tiny

GONE = "net::ERR_CONNECTION_REFUSED"  # after the program has ended


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A small run; nobody may change it."""
    tiny = write_tiny(tmp_path_factory.mktemp("finished") / "tiny")
    return run(tiny.study, tiny.clients, out=tiny.out)


@pytest.fixture(scope="session")
def report(finished):
    """Its report, with empty figures: how those look is tested elsewhere, and takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawing, "svg", "<svg></svg>")
        return render(finished)


@pytest.fixture
def run_page(finished):
    """The page of a run that is about to begin."""
    return RunPage(finished.study)


@pytest.fixture
def served(run_page):
    with PageServer(run_page) as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser):
    """A function that opens a page; what its script complains of fails the test."""
    contexts, complaints = [], []

    def _visit(address, viewport=DESK, scheme="light"):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield _visit
    for context in contexts:
        context.close()
    assert [text for text in complaints if GONE not in text] == []
