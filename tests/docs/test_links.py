"""Every page leads somewhere: links, anchors, and paths of files that are named in passing."""

import re
from pathlib import Path

import pytest

from tests.docs.kit.blocks import anchors, links

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not any(
        part.startswith(".") or part in {"build", "dist"} for part in page.relative_to(ROOT).parts
    )
)
GUIDES = [page for page in PAGES if DOCS in page.parents or page.name == "CONTRIBUTING.md"]
"""Pages for those who change the code: they name its files."""

_FENCED = re.compile(r"^(```+)[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_IN_BACKTICKS = re.compile(r"`((?:proxy|tests|config|bench)/[^`\s]*)`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text_of(page: Path) -> str:
    """The page, without its fenced blocks."""
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def dead_links(page: Path) -> list[str]:
    """What *page* links to that is not there; pages of others are not asked."""
    found = []
    for link in links(text_of(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        if not leads_somewhere(page.parent / file if file else page, anchor):
            found.append(link)
    return found


def leads_somewhere(target: Path, anchor: str) -> bool:
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target.read_text(encoding="utf-8"))


def lost_paths(page: Path) -> list[str]:
    """What *page* names in backticks as a path in the code, and is none."""
    named = _IN_BACKTICKS.findall(text_of(page))
    return [path for path in named if not any(ROOT.glob(path.rstrip("/")))]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert not dead_links(page)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_paths_are_those_of_files(page: Path) -> None:
    assert not lost_paths(page)


def test_all_pages_are_looked_at() -> None:
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= {name_of(page) for page in PAGES}
    assert DECISIONS / "README.md" in GUIDES


def test_a_page_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Here it is, `at` last\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Top\n[a](other.md#here-it-is-at-last) [b](#top) [c](https://c.example/)\n"
        "[d](other.md#gone) [e](#gone) [f](gone.md) `proxy/gone.py` `proxy/*.gone`\n"
        "`proxy/` `proxy/py.typed` `tests/docs/*.py`\n```sh\n[g](gone.md) `proxy/gone.py`\n```\n"
    )
    assert dead_links(page) == ["other.md#gone", "#gone", "gone.md"]
    assert lost_paths(page) == ["proxy/gone.py", "proxy/*.gone"]


# The decisions.


@pytest.mark.parametrize("page", sorted(DECISIONS.glob("[!R]*.md")), ids=name_of)
def test_a_decision_says_what_why_and_until_when(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Context", "Choice", "Figures", "What would change our mind"]


def test_the_index_names_every_decision_once() -> None:
    index = links((DECISIONS / "README.md").read_text(encoding="utf-8"))
    named = sorted(link for link in index if "/" not in link)
    assert named == sorted(page.name for page in DECISIONS.glob("[!R]*.md"))
