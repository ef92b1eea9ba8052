"""The built site in a real browser, opened as files: nothing is loaded from elsewhere, and the search finds pages.

``make test-browser`` builds the site first.
"""

import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SITE = Path(__file__).parents[2] / "site"
PAGES = ("index", "tutorial", "gallery", "concepts", "running", "comparison", "commands", "api/batchscale", "json")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield started
        started.close()


def open_page(browser, name, width=1280, scheme="light"):
    page = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme).new_page()
    page.set_default_timeout(120_000)
    problems = []
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or problems.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((SITE / f"{name}.html").as_uri())
    return page, problems


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_loads_nothing_from_elsewhere(browser, name, width, scheme):
    page, problems = open_page(browser, name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert problems == []


@pytest.mark.parametrize(("words", "found"), [("edge guard", "Concepts"), ("critical batch size", "Concepts")])
def test_the_search_finds_pages_without_a_server(browser, words, found):
    page, problems = open_page(browser, "index")
    page.fill("input[name=q]", words)
    page.press("input[name=q]", "Enter")
    page.wait_for_selector("#search-results li a")
    page.wait_for_function("document.querySelector('.search-summary')?.innerText.includes('found')")
    titles = page.eval_on_selector_all("#search-results li > a", "all => all.map(link => link.innerText)")
    assert any(found in title for title in titles), titles
    assert problems == []


@pytest.mark.parametrize(("scheme", "shown"), [("light", "curve.svg"), ("dark", "curve-dark.svg")])
def test_pictures_follow_the_colours_of_the_page(browser, scheme, shown):
    page, _ = open_page(browser, "gallery", scheme=scheme)
    visible = "all => all.filter(image => image.offsetParent).map(image => image.getAttribute('src'))"
    pictures = page.eval_on_selector_all("article img", visible)
    assert next(source for source in pictures if "gallery/curve" in source).endswith(shown)


def test_formulas_are_drawn(browser):
    page, _ = open_page(browser, "concepts")
    heights = page.eval_on_selector_all("math[display=block]", "all => all.map(m => m.getBoundingClientRect().height)")
    assert len(heights) >= 8 and min(heights) > 15
    assert "$" not in page.inner_text("article")
