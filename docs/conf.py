# noqa: INP001 - Sphinx reads it by its path
"""How Sphinx builds the site and the man pages: ``make docs``.

The pages are plain Markdown that reads well on a code host, so nothing of Sphinx stands in them.
What it needs besides is made here: the table of contents from the links of each list of pages, and
addresses for links to files outside of ``docs/``.
"""

import re
import tomllib
from pathlib import Path
from posixpath import join, normpath

from sphinx.application import Sphinx

_ROOT = Path(__file__).parent.parent
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_SOURCE = _PROJECT["urls"]["Homepage"]

project = "Holdfast"
copyright = "the Holdfast maintainers, Apache-2.0"  # noqa: A001 - Sphinx reads it by this name
_VERSION = re.search(r'__version__ = "(.+)"', (_ROOT / "proxy" / "__init__.py").read_text())
version = release = _VERSION[1] if _VERSION else ""

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
# Anchors are those that a code host makes of headings.
myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"Holdfast {version}"
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

_ABSTRACT = _PROJECT["description"]
man_pages = [
    ("reference/command-line", "holdfast", _ABSTRACT[0].lower() + _ABSTRACT[1:], "", 1),
    ("reference/configuration", "holdfast.yaml", "what Holdfast does, route by route", "", 5),
]

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]*)(#[^)\s]*)?(?=\))")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_LISTS = {"index", "decisions/README"}
"""Pages that list other pages."""


def leaving(docname: str, text: str) -> str:
    """*text* with the address in the repository for each link to a file outside of ``docs/``."""

    def address(link: re.Match[str]) -> str:
        path = normpath(join("docs", docname, "..", link[1]))
        is_inside = path.startswith("docs/") or not link[1]
        return link[0] if is_inside else f"{_SOURCE}/blob/main/{path}{link[2] or ''}"

    return _LINK.sub(address, text)


def contents(text: str) -> str:
    """A hidden table of contents for each section of *text* that links to pages beside it.

    A page that several sections link to is in the last one.
    """
    top, *sections = _HEADING.split(text)
    section_of: dict[str, str] = {}
    for title, section in (("", top), *zip(sections[::2], sections[1::2], strict=True)):
        pages = [link[1] for link in _LINK.finditer(section) if link[1].endswith(".md")]
        section_of |= {page: title for page in pages if not page.startswith("../")}
    made = []
    for title in dict.fromkeys(section_of.values()):
        inside = [page for page in section_of if section_of[page] == title]
        caption = [f":caption: {title}"] if title else []
        made += ["```{toctree}", ":hidden:", *caption, "", *inside, "```", ""]
    return "\n".join(("", "", *made))


def _on_source_read(_: Sphinx, docname: str, source: list[str]) -> None:
    listed = contents(source[0]) if docname in _LISTS else ""
    source[0] = leaving(docname, source[0]) + listed


def setup(app: Sphinx) -> None:
    """Have each page changed before it is parsed."""
    app.connect("source-read", _on_source_read)
