"""Every page and the report as people meet them: contrast, names of controls, landmarks, headings, keyboard, quiet."""

import shutil
from pathlib import Path

import pytest
from browsing import browse, until
from web_process import WebProcess

from batchscale.records.read import read_records
from batchscale.report.page import make_report

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "examples"
DRAWN = """[...document.querySelectorAll('figure[data-chart]')].every(
  figure => figure.closest('details:not([open])') || figure.querySelector('.explored canvas, picture'))"""
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true; })"
# Text whose contrast is below WCAG AA: 4.5, or 3 for large text. Grounds are blended from the page upwards.
FAINT = """() => {
  const parse = text => { const n = (text.match(/[\\d.]+/g) || []).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => [.2126, .7152, .0722].reduce((sum, part, i) => sum + part * linear(c[i] / 255), 0);
  const ground = element => {
    const chain = [];
    for (let e = element; e; e = e.parentElement) { chain.unshift(parse(getComputedStyle(e).backgroundColor)); }
    return chain.reduce((below, colour) => colour[3] ? over(colour, below) : below, [255, 255, 255, 1]);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    const box = element.getBoundingClientRect();
    const isShown = element.checkVisibility({visibilityProperty: true}) && box.width >= 2;
    if (!text || !isShown || element.closest('noscript, option, script, [disabled]')) { continue; }
    const style = getComputedStyle(element);
    const inDrawing = element.closest('svg');
    const colour = parse(inDrawing ? style.fill : style.color);
    const below = ground(inDrawing ? inDrawing.parentElement : element);
    const [a, b] = [light(over(colour, below)), light(below)];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) { faint.push([text.slice(0, 40), ratio.toFixed(2)]); }
  }
  return faint;
}"""
# Fields and buttons whose edge differs too little from the ground beside it (WCAG 1.4.11).
FAINT_EDGES = (
    FAINT.split("const faint")[0]
    + """
  const typed = 'input:not([type=hidden], [type=checkbox], [type=range], [type=file]), select, textarea';
  return [...document.querySelectorAll(typed)]
    .filter(e => e.checkVisibility()).map(e => {
      const [a, b] = [light(parse(getComputedStyle(e).borderTopColor)), light(ground(e.parentElement))];
      return [e.name, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
    }).filter(pair => pair[1] < 3);
}"""
)
CONTROLS = "input:not([type=hidden]), select, textarea, button, a[href], summary"
NAMELESS = (
    f"() => [...document.querySelectorAll('{CONTROLS}')]"
    + """.filter(e => {
  const label = e.labels && [...e.labels].some(l => l.textContent.trim());
  return !(label || e.getAttribute('aria-label') || e.textContent.trim() || e.getAttribute('title'));
}).map(e => e.outerHTML.slice(0, 120))"""
)
STRUCTURE = """() => {
  const levels = [...document.querySelectorAll('h1, h2, h3, h4')].map(e => Number(e.tagName[1]));
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  return {
    mains: document.querySelectorAll('main').length, headings: document.querySelectorAll('h1').length,
    lang: document.documentElement.lang, title: document.title,
    navs: [...document.querySelectorAll('nav')].map(e => e.getAttribute('aria-label')),
    skipped: levels.filter((level, i) => i > 0 && level > levels[i - 1] + 1),
    doubled: ids.filter((id, i) => ids.indexOf(id) !== i),
    images: [...document.querySelectorAll('img:not([alt])')].length,
    regions: [...document.querySelectorAll('.scroll')].filter(e => !e.ariaLabel || e.tabIndex !== 0).length,
    headers: [...document.querySelectorAll('thead th:not([scope])')].length,
  };
}"""
FOCUS = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) { return null; }
  const all = [...document.querySelectorAll('*')];
  const style = getComputedStyle(e);
  return {place: all.indexOf(e), outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2};
}"""


def check(page) -> None:
    """The page as it is now, with everything unfolded."""
    until(page, DRAWN)
    page.evaluate(UNFOLD)
    page.wait_for_timeout(300)
    where = page.url
    assert page.evaluate(FAINT) == [], where
    assert page.evaluate(FAINT_EDGES) == [], where
    assert page.evaluate(NAMELESS) == [], where
    structure = page.evaluate(STRUCTURE)
    assert structure["mains"] == structure["headings"] == 1 and structure["lang"] == "en" and structure["title"], where
    assert structure["navs"] and all(structure["navs"]), where
    for name in ("skipped", "doubled"):
        assert structure[name] == [], (where, name)
    assert structure["images"] == structure["regions"] == structure["headers"] == 0, (where, structure)


def follow_focus(page, stops: int = 25) -> None:
    """The first stops of the Tab key come in the order of the page, each with a visible outline."""
    page.evaluate("document.activeElement.blur()")
    places = []
    for _ in range(stops):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUS)
        if stop is None or stop["place"] in places[:1]:  # the end of the page, or its beginning again
            break
        assert stop["outline"], page.url
        places.append(stop["place"])
    assert len(places) > 3 and places == sorted(places), page.url


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("accessible")
    folder = tmp / "records"
    folder.mkdir()
    for name in ("finished", "interrupted"):
        shutil.copytree(TESTS / "formats" / "format_1" / name, folder / name)
    shutil.copytree(EXAMPLES / "mnist_fc_records", folder / "mnist")
    shutil.copy(EXAMPLES / "ddsp_training_runs.csv", folder / "runs.csv")
    process = WebProcess(folder, tmp / "state")
    yield process
    process.end()


@pytest.fixture(scope="module")
def token(server):
    """The one-time code works once; the token beside it works again."""
    with browse(server.home) as page:
        page.goto(server.address)
        page.wait_for_selector("td.name a")
        return page.context.storage_state()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_read_named_and_reached(server, token, theme):
    with browse(server.home, color_scheme=theme) as page:
        page.goto(f"{server.home}/sign-in")
        check(page)
        assert page.said == [] and page.foreign == []
    with browse(server.home, color_scheme=theme, storage_state=token) as page:
        page.goto(server.home)
        page.wait_for_selector("td.name a")
        while page.query_selector("text=are being read"):
            page.wait_for_timeout(500)
        page.goto(server.home)
        keys = {
            link.inner_text() + str(place): link.get_attribute("href")
            for place, link in enumerate(page.query_selector_all("td.name a"))
        }
        finished, stopped, first, second, *_ = keys.values()
        runs = page.goto(f"{server.home}/runs") and page.get_attribute("td.name a", "href")
        plan = f"{first}/plan?name0=mine&device0=x86_64&devices0=1&hosts0=4&price0=2.5&deadline=1"
        compare = f"/compare?k={first[3:]}&k={second[3:]}"
        for path in (
            "/",
            "/?q=nothing+matches",
            finished,
            stopped,
            first,
            plan,
            "/runs",
            runs,
            "/compare",
            compare,
            "/new",
            "/atlas",
        ):
            page.goto(server.home + path)
            check(page)
            follow_focus(page)
        assert page.said == [] and page.foreign == []
        page.goto(f"{server.home}/nowhere")  # the console names the answer 404 itself
        check(page)
        assert page.foreign == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_report_can_be_read_named_and_reached(tmp_path, theme):
    report = tmp_path / "report.html"
    report.write_text(make_report(read_records(EXAMPLES / "mnist_fc_records").filter(model="fc_1024")))
    with browse("file:", color_scheme=theme) as page:
        page.goto(report.as_uri())
        check(page)
        follow_focus(page, stops=6)
        assert page.said == [] and [url for url in page.foreign if not url.startswith("data:")] == []
