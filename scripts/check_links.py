"""Check the links of the built site without a network: ``python scripts/check_links.py [site]``.

Every link to a page, picture or anchor of the site must lead there, in the pages and in their Markdown. A page must
load nothing from elsewhere. Addresses of other sites are only checked for their form.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img", "script", "iframe", "source", "video", "audio", "embed"}
MARKDOWN_LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?", re.IGNORECASE)


class PageParser(HTMLParser):
    """Collects the anchors of a page, its links, and the addresses of what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the attributes that matter from a tag."""
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag in LOADED and "src" in values:
            self.loaded.append(values["src"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon"):
            self.loaded.append(values["href"])
        elif tag in ("a", "link") and "href" in values:
            self.links.append(values["href"])


def check_site(site: Path) -> list[str]:
    """Return every broken link of a built site, one line each."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = PageParser()
        pages[path].feed(path.read_text(encoding="utf-8"))
    links = [(path, link, False) for path, page in pages.items() for link in page.links]
    links += [(path, link, True) for path, page in pages.items() for link in page.loaded]
    for path in (*sorted(site.rglob("*.md")), *site.glob("llms.txt")):
        text = CODE.sub("", path.read_text(encoding="utf-8"))
        links += [(path, link, False) for link in MARKDOWN_LINK.findall(text)]
    checked = ((path, link, _problem(path, link, loads, pages)) for path, link, loads in links)
    return [f"{path.relative_to(site)}: {link}: {problem}" for path, link, problem in checked if problem]


def _problem(path: Path, link: str, loads: bool, pages: dict[Path, PageParser]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        if loads and parts.scheme != "data":
            return "a page must load nothing from elsewhere"
        is_formed = parts.scheme in ("data", "mailto") or HOST.fullmatch(parts.netloc)
        return None if is_formed and parts.scheme in ("https", "http", "mailto", "data") else "is not an address"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "there is no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return "the page has no such anchor"
    return None


def main() -> None:
    """Print the broken links, and end with 1 if there are any."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    problems = check_site(site)
    print("\n".join(problems) or f"All links of {len(list(site.rglob('*.html')))} pages lead somewhere.")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
