"""A real browser, and what axe says of a page in it."""

import shutil
from contextlib import contextmanager

import pytest

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1200, "height": 900}


@contextmanager
def chromium():
    """A browser, as a context; whoever has none skips."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def violations(page, impacts=None, **options):
    """All that axe finds, or all of these impacts, as rule and first element."""
    axe = pytest.importorskip("axe_core_python.sync_playwright", reason="axe-core is not installed")
    # To describe every element that is as it should be takes longer than to look at it.
    found = axe.Axe().run(page, options={"resultTypes": ["violations"], **options})["violations"]
    grave = [one for one in found if impacts is None or one["impact"] in impacts]
    return [(one["id"], one["nodes"][0]["html"]) for one in grave]
