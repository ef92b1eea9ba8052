"""Links of a page that lead out of docs/, into the repository, become plain words in the built pages (a mkdocs hook).

In the repository they lead somewhere; a site in site/ has no examples beside it.
"""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]*)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's text with words in place of the links that leave docs/."""
    depth = page.file.src_uri.count("/")
    return OUTSIDE.sub(lambda link: link[0] if _stays_inside(link[2], depth) else link[1], markdown)


def _stays_inside(target: str, depth: int) -> bool:
    """Whether a link of a page so many folders deep stays in docs/.

    >>> _stays_inside("../analysis.md", 1), _stays_inside("../examples/regression.py", 0)
    (True, False)
    """
    return target.count("../") <= depth
