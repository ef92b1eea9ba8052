"""A headless Chromium on a server of its own: what it said, whom it asked, and whether it fits both widths."""

import shutil
from contextlib import contextmanager

import pytest

WIDTHS = (400, 1400)


@contextmanager
def browse(home: str, **context):
    """A page that remembers what its console said and whom it asked."""
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or pytest.fail("These tests need Chromium; `make test-browser` installs it.")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1400, "height": 1000}, **context).new_page()
        page.set_default_timeout(120_000)
        page.said, page.foreign = [], []
        page.on(
            "console", lambda message: page.said.append(message.text) if message.type in ("error", "warning") else 0
        )
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(home) else page.foreign.append(asked.url))
        yield page
        browser.close()


def until(page, expression: str, tenths: int = 1200) -> None:
    """Wait for an expression to hold; the driver's own way of waiting is an eval, which our policy forbids."""
    for _ in range(tenths):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    pytest.fail(expression)


def fits(page) -> None:
    """The page must fit both widths."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
