"""The site: its navigation, its gallery, the Markdown that a generator gets, and the check of its links."""

import re
import tomllib
from pathlib import Path

import check_links
import command_page
import gallery_pictures
import pytest
import site_source
from typer.testing import CliRunner

from batchscale.cli.app import COMMANDS, make_app
from batchscale.figures.kinds import kind_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GALLERY = gallery_pictures.read_entries((DOCS / "gallery.md").read_text(encoding="utf-8"))
MOMENTUM = "examples/momentum_choices.toml"
MADE = {"commands.md", "api/index.md"}


def test_every_page_is_in_the_navigation_once():
    names = [name for _, names in site_source.read_sections() for name in names]
    pages = {page.relative_to(DOCS).as_posix() for page in (*DOCS.glob("*.md"), *DOCS.glob("studies/*.md"))}
    assert sorted(names) == sorted(pages - {"index.md"} | MADE | {"decisions/index.md"}), "see docs/contents.toml"


def test_the_gallery_has_every_kind_of_chart():
    assert sorted(kind for kind, _, _ in GALLERY) == sorted(kind_names())
    for kind, commands, picture in GALLERY:
        assert picture in commands[-1], f"the command of {kind} must write {picture}"
        assert (DOCS / "pictures" / "gallery" / picture).exists(), f"run `make gallery` for {kind}"


@pytest.mark.parametrize(("kind", "commands", "picture"), GALLERY, ids=[kind for kind, _, _ in GALLERY])
def test_the_commands_of_the_gallery_draw(kind, commands, picture, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    experiment = (ROOT / MOMENTUM).read_text(encoding="utf-8")
    small = experiment.replace("trials = 24", "trials = 3").replace("16, 64, 256, 1024", "64, 256")
    (tmp_path / "small.toml").write_text(small, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    drawn = f"{kind}.json"  # the specification: rendering it is tested with the figures
    changed = {picture: drawn, MOMENTUM: "small.toml"}
    for words in commands:
        answer = CliRunner().invoke(make_app(), [changed.get(word, word) for word in words])
        assert answer.exit_code == 0, answer.output
    assert (tmp_path / drawn).read_text(encoding="utf-8").count('"mark"') > 0


def test_every_command_is_in_the_reference():
    page = command_page.make_page()
    for name in COMMANDS:
        assert f"### batchscale {name}\n" in page
    assert "| `--deadline " in page and "### batchscale trainer check" in page


def test_code_keeps_its_dollars_and_links_of_the_repository_become_words():
    text = "Run `echo $A$B`.\n\n```sh\n$ echo $HOME $HOME\n```\n\n[This](../examples/a.py) and ![p](pictures/plan.png)."
    plain = site_source.without_outside_links(text, "page.md")
    made = site_source.for_generator(plain, "page.md")
    assert "`echo $A$B`" in made and "$ echo $HOME $HOME" in made
    assert "This and <a" in made and 'class="on-paper" src="pictures/plan.png" alt="p"' in made


def test_a_picture_with_a_dark_one_beside_it_becomes_both():
    made = site_source.for_generator("![A curve](pictures/gallery/curve.svg)", "gallery.md")
    assert re.findall(r'<img class="([\w-]+)" src="([\w/.-]+)"', made) == [
        ("only-light", "pictures/gallery/curve.svg"),
        ("only-dark", "pictures/gallery/curve-dark.svg"),
    ]


def test_only_formulas_are_taken_for_formulas():
    found = {}
    for name, text in site_source.read_pages().items():
        plain = "".join(site_source.CODE.split(text)[::2])
        found[name] = len(site_source.BLOCK_MATH.findall(plain)) + len(site_source.INLINE_MATH.findall(plain))
    assert {name for name, count in found.items() if count} == {"concepts.md"}, "write prices in USD, not with a $"


def test_llms_text_lists_every_page_with_a_sentence():
    pages = site_source.read_pages()
    lines = site_source.make_llms_text(pages).splitlines()
    listed = dict(re.findall(r"^- \[.+\]\((\S+)\): (.*)$", "\n".join(lines), re.MULTILINE))
    assert lines[0] == "# batchscale" and lines[2].startswith("> ")
    assert set(listed) == {name for name in pages if not site_source.DECISION.match(name)} - {"index.md"}
    assert all(sentence.rstrip().endswith((".", "?", ":", "!")) for sentence in listed.values()), listed


def write_site(folder, **pages):
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>", encoding="utf-8")
    return folder


def test_good_links_pass(tmp_path):
    site = write_site(
        tmp_path,
        a='<h1 id="top">A</h1><a href="b.html#x">b</a><a href="#top">up</a><a href="https://example.org/a">e</a>',
        b='<p id="x"></p><img src="data:image/png;base64,AA==">',
    )
    (site / "a.md").write_text("[b](b.html) `[no](link.md)`", encoding="utf-8")
    assert check_links.check_site(site) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="c.html">c</a>', "no such file"),
        ('<a href="a.html#y">y</a>', "no such anchor"),
        ('<a href="#z">z</a>', "no such anchor"),
        ('<img src="p.png">', "no such file"),
        ('<script src="https://example.org/a.js"></script>', "load nothing from elsewhere"),
        ('<link rel="stylesheet" href="https://example.org/a.css">', "load nothing from elsewhere"),
        ('<a href="https:/example.org">e</a>', "not an address"),
        ('<a href="ftp://example.org">e</a>', "not an address"),
    ],
)
def test_a_broken_link_is_named(body, problem, tmp_path):
    (found,) = check_links.check_site(write_site(tmp_path, a=body))
    assert found.startswith("a.html: ") and problem in found


def test_a_broken_link_in_markdown_is_named(tmp_path):
    (write_site(tmp_path, a="") / "a.md").write_text("[b](b.md)", encoding="utf-8")
    assert check_links.check_site(tmp_path) == ["a.md: b.md: there is no such file"]


def test_the_tools_of_the_site_are_pinned_exactly():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().splitlines()
    for requirement in project["optional-dependencies"]["docs"]:
        assert re.fullmatch(r"[\w-]+==[\d.]+", requirement)
        assert requirement in constraints
