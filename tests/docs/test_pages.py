"""Pages are short enough to read, and can be found."""

from pathlib import Path

import pytest

from tests.docs.kit.pages import INDEX, PAGES, ROOT, name_of, reachable_from, words_of

MOST_WORDS = 2_500
MOST_LINES_OF_THE_README = 250


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_can_be_read_in_ten_minutes(page: Path) -> None:
    assert words_of(page) <= MOST_WORDS


def test_every_page_is_reachable_from_the_index() -> None:
    assert {*PAGES} - {ROOT / "README.md"} <= reachable_from(INDEX)


def test_the_readme_leads_to_the_index() -> None:
    assert INDEX in reachable_from(ROOT / "README.md", clicks=1)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES_OF_THE_README
