"""The site: every page is in it, with search and with the anchors that plain files link to.
Beside it are man pages of the command line and of the configuration file.

``make docs`` builds it as well, and CI runs that. Built here once, where the packages of the extra
``docs`` are installed.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.kit.blocks import anchors
from tests.docs.kit.pages import PAGES, ROOT

DOCS = ROOT / "docs"

pytestmark = pytest.mark.deep
"""Sphinx takes several seconds to start and to parse all pages."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not all(find_spec(name) for name in ("sphinx", "myst_parser", "furo")):
        missing = "Sphinx, MyST-Parser or Furo is missing: `make docs` installs them"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("site")
    sphinx = (sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going")
    for kind in ("html", "man"):
        build = [*sphinx, "-d", str(folder / "doctrees"), "-b", kind, str(DOCS), str(folder / kind)]
        subprocess.run(build, check=True, timeout=120)
    return folder


@pytest.fixture
def site(built: Path) -> Path:
    return built / "html"


def test_every_page_is_there_with_its_anchors(site: Path) -> None:
    for page in PAGES[1:]:
        built = (site / page.relative_to(DOCS)).with_suffix(".html").read_text(encoding="utf-8")
        made = set(re.findall(r'\bid="([^"]+)"', built))
        # Sphinx writes the id of a section, and the anchor beside it, if the two differ.
        missing = anchors(page.read_text(encoding="utf-8")) - made
        assert not missing, page


def test_the_table_of_contents_has_the_kinds_of_pages(site: Path) -> None:
    built = (site / "index.html").read_text(encoding="utf-8")
    captions = re.findall(r'class="caption-text">([^<]+)<', built)
    assert captions == re.findall(r"^## (.+)$", (DOCS / "index.md").read_text(), re.MULTILINE)


def test_search_finds_a_page_by_a_word_in_it(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    found = index["terms"]["outcome_unknown"]
    numbers = found if isinstance(found, list) else [found]
    assert "reference/answers" in [index["docnames"][number] for number in numbers]


def test_links_to_files_outside_lead_to_the_repository(site: Path) -> None:
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    built = (site / "index.html").read_text(encoding="utf-8")
    assert f'href="{source}/blob/main/README.md"' in built


# Man pages.


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("holdfast.1", "reference/command-line.md"),
        ("holdfast.yaml.5", "reference/configuration.md"),
    ],
)
def test_a_man_page_has_its_section_and_all_of_its_page(built: Path, name: str, page: str) -> None:
    text = (built / "man" / name).read_text(encoding="utf-8").replace("\\-", "-")
    title, _, section = name.rpartition(".")
    assert f'.TH "{title.upper()}" "{section}"' in text
    assert re.search(rf"^\.SH NAME\n{re.escape(title)} - \w", text, re.MULTILINE)
    wanted = re.findall(r"^## (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    plain = [heading.replace("`", "").upper() for heading in wanted]
    found = [one.strip('"').upper() for one in re.findall(r"^\.SH (.+)$", text, re.MULTILINE)]
    assert plain
    assert [one for one in found if one in plain] == plain


def test_make_docs_builds_both() -> None:
    docs = ["make", "--dry-run", "docs"]
    told = subprocess.run(docs, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "-b html docs build/docs" in told
    assert "-b man docs build/man" in told
