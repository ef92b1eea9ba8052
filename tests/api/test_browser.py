"""Curves and plans in a real browser, as a notebook shows them: readable light and dark, wide and narrow, and quiet."""

from pathlib import Path

import pytest

import batchscale as bs

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
CONTRAST = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number)
  const linear = v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  const light = ([r, g, b]) => [r, g, b].map(v => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
  const ground = element => {
    const colour = parse(getComputedStyle(element).backgroundColor)
    return colour.length === 4 && colour[3] === 0 ? ground(element.parentElement) : colour
  }
  const texts = [...document.querySelectorAll('.batchscale *:not(style):not(svg *)')]
    .filter(e => e.offsetWidth && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
  return texts.map(e => {
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x)
    return [e.className + ' ' + e.textContent.slice(0, 20), (a + 0.05) / (b + 0.05)]
  })
}"""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    coarse = bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900, 256: 1300, 512: 990, 1024: 850}, spacing={1024: 300})
    return {"curve": coarse._repr_html_(), "plan": bs.plan(ROOT / "examples" / "ddsp_training_runs.csv")._repr_html_()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 400])
def test_cards_chart_and_advice_are_readable(pages, scheme, width):
    import shutil

    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or pytest.fail("These tests need Chromium; `make test-browser` installs it.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, html in pages.items():
            page = browser.new_context(viewport={"width": width, "height": 600}, color_scheme=scheme).new_page()
            requests, messages = [], []
            page.on("request", lambda request, seen=requests: seen.append(request.url))
            page.on("console", lambda message, seen=messages: seen.append(message.text))
            page.set_content(f"<!doctype html><body>{html}</body>")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.locator(".batchscale svg:visible").count() == 1
            poor = [(text, ratio) for text, ratio in page.evaluate(CONTRAST) if ratio < 4.5]  # WCAG AA
            assert poor == [] and requests == [] and messages == []
        browser.close()
