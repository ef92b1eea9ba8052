"""Write the pages of the site as plain Markdown, for any generator: the first step of ``make docs``.

    python scripts/site_source.py [build]

``build/site-source`` has every page for the generator: those of docs/, and those made from the code (commands, Python
API). Formulas are MathML and pictures are HTML, so that the built pages need no script and no network.
``build/site-extra`` is copied beside the built pages: each page as Markdown, with formulas in LaTeX; the pictures; and
``llms.txt``.
"""

import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from html import escape
from pathlib import Path

import api_pages
import command_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CODE = re.compile(r"(^```.*?^```$|^~~~.*?^~~~$|^(?: {4}|\t)[^\n]*$|`+[^`\n]+`+)", re.MULTILINE | re.DOTALL)
OUTSIDE = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]+)\)")
BLOCK_MATH = re.compile(r"^\$\$(.+?)\$\$$", re.MULTILINE | re.DOTALL)
INLINE_MATH = re.compile(r"(?<![\w$\\])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![\w$])")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
SHORT = 40
DECISION = re.compile(r"decisions/\d")


def main() -> None:
    """Write both folders anew."""
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    source, extra = build / "site-source", build / "site-extra"
    for folder in (source, extra):
        shutil.rmtree(folder, ignore_errors=True)
    pages = read_pages()
    for name, text in pages.items():
        _write(extra / name, text)
        _write(source / name, for_generator(text, name))
    shutil.copytree(DOCS / "pictures", extra / "pictures")
    _write(extra / "llms.txt", make_llms_text(pages))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def read_sections() -> list[tuple[str, list[str]]]:
    """Return the sections of the navigation, each with its pages."""
    contents = tomllib.loads((DOCS / "contents.toml").read_text(encoding="utf-8"))
    return [(section["title"], section["pages"]) for section in contents["section"]]


def read_pages() -> dict[str, str]:
    """Return the Markdown of every page by its path, the written ones and those made from the code."""
    written = {page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
    pages = written | api_pages.make_pages() | {"commands.md": command_page.make_page()}
    return {name: without_outside_links(text, name) for name, text in sorted(pages.items())}


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return the text with a change of everything that is not code.

    >>> outside_code("a `a` a", lambda part: part.replace("a", "b"))
    'b `a` b'
    """
    return "".join(part if place % 2 else change(part) for place, part in enumerate(CODE.split(text)))


def without_outside_links(text: str, name: str) -> str:
    """Return a page with words in place of links that leave docs/: the site has no examples beside it.

    >>> without_outside_links("[a](../a.md), [b](../../examples/b.py)", "studies/page.md")
    '[a](../a.md), b'
    """
    depth = name.count("/")
    return OUTSIDE.sub(lambda link: link[0] if link[2].count("../") <= depth else link[1], text)


def for_generator(text: str, name: str) -> str:
    """Return a page with formulas as MathML and pictures as HTML; diagrams, which need a script, stay text."""
    text = text.replace("```mermaid\n", "```text\n")
    return outside_code(text, lambda part: PICTURE.sub(lambda match: _picture(match, name), with_mathml(part)))


def with_mathml(text: str) -> str:
    """Return a text whose formulas, written as in LaTeX between dollar signs, are MathML."""
    text = BLOCK_MATH.sub(lambda match: f"\n{_mathml(match[1], 'block')}\n", text)
    return INLINE_MATH.sub(lambda match: _mathml(match[1], "inline"), text)


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert  # of the extra docs, which the tests do not need

    return str(convert(" ".join(formula.split()), display=display)).replace("\n", "")


def _picture(match: re.Match[str], name: str) -> str:
    """Return a picture as HTML: where there is a dark one beside it, both, of which a style shows one."""
    alt, target = match[1], match[2]
    dark = Path(target).with_stem(f"{Path(target).stem}-dark")
    if not (DOCS / Path(name).parent / dark).exists():
        return _image(target, alt, "on-paper")
    return _image(target, alt, "only-light") + _image(dark.as_posix(), alt, "only-dark")


def _image(target: str, alt: str, kind: str) -> str:
    file = escape(target)
    return f'<a class="{kind}" href="{file}"><img class="{kind}" src="{file}" alt="{escape(alt)}" loading="lazy"></a>'


def page_title(text: str) -> str:
    """Return the heading of a page."""
    return text.partition("\n")[0].removeprefix("# ").replace("`", "")


def first_sentence(text: str) -> str:
    r"""Return the first sentence below the heading, without links; a very short one with those after it.

    >>> first_sentence("# Title\n```sh\nls\n```\n\nUse [this](a.md) as long as there is nothing better. Or not.")
    'Use this as long as there is nothing better.'
    """
    body = re.sub(r"^(```.*?^```|<.*?>$|[|!#].*?$)", "", text.partition("\n")[2], flags=re.MULTILINE | re.DOTALL)
    paragraph = next((part for part in body.split("\n\n") if part.strip()), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split())).replace("**", "")
    first, *others = re.split(r"(?<=[.?!]) (?=[A-Z`])", plain)
    while others and len(first) < SHORT:
        first += f" {others.pop(0)}"
    return first


def make_llms_text(pages: dict[str, str]) -> str:
    """Return llms.txt: the project in a sentence, and every page as Markdown with its first sentence."""
    lines = [f"# {page_title(pages['index.md'])}", "", f"> {first_sentence(pages['index.md'])}", ""]
    lines += ["Each page is here as Markdown; the same address with .html is the page for a browser."]
    for title, names in read_sections():
        lines += ["", f"## {title}", ""]
        lines += [f"- [{page_title(pages[name])}]({name}): {first_sentence(pages[name])}" for name in names]
    listed = {name for _, names in read_sections() for name in names} | {"index.md"}
    rest = [name for name in pages if name not in listed and not DECISION.match(name)]
    lines += ["", "## Optional", ""]
    lines += [f"- [{page_title(pages[name])}]({name}): {first_sentence(pages[name])}" for name in rest]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
