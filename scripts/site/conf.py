"""Settings of Sphinx, which builds the site from the Markdown of site_source.py; decision 0238 says why Sphinx.

Nothing but the navigation is added here: the pages are plain Markdown.
"""

import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

project = "batchscale"
author = "the authors of batchscale"
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["toc.not_included"]  # the decisions, which their index lists
html_theme = "furo"
html_title = "batchscale"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_extra_path = [str(ROOT / "build" / "site-extra")]
templates_path = [str(HERE / "templates")]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ee", "color-brand-content": "#7cc4ee"},
    "top_of_page_buttons": ["view"],
}
pygments_style = "default"
pygments_dark_style = "native"


def add_navigation(app: Any, page: str, content: list[str]) -> None:
    """Give the first page the sections of docs/contents.toml, and keep the decisions out of the search."""
    del app
    if page == "index":
        sections = tomllib.loads((ROOT / "docs" / "contents.toml").read_text(encoding="utf-8"))["section"]
        for section in sections:
            pages = "\n".join(name.removesuffix(".md") for name in section["pages"])
            content[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {section['title']}\n\n{pages}\n```\n"
    elif page == "api/index":
        content[0] += "\n```{toctree}\n:hidden:\n:glob:\n\nbatchscale\nbatchscale.*\n```\n"
    elif page.startswith("decisions/0"):
        content[0] = f"---\norphan: true\nnosearch: true\n---\n{content[0]}"


def setup(app: Any) -> None:
    """Connect the navigation."""
    app.connect("source-read", add_navigation)
