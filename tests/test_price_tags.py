"""Where a rule is said twice for speed, the second place says what holds both together."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_TWIN = re.compile(r"# speed: same as (?P<rest>[^\n]*(?:\n *# [^\n]*)*)")
_TEST = re.compile(r"held by\s+(tests/[\w/]+\.py)")


def twins() -> Iterator[tuple[str, str]]:
    """Yield where each comment stands, and its text on one line."""
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        text = path.read_text()
        for found in _TWIN.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            rest = re.sub(r"\s*\n\s*#\s*", " ", found["rest"])
            yield f"{path.relative_to(ROOT)}:{line}", rest


@pytest.mark.parametrize(("place", "tag"), [pytest.param(*twin, id=twin[0]) for twin in twins()])
def test_a_twin_names_its_test_and_its_gain(place: str, tag: str) -> None:
    test = _TEST.search(tag)
    assert test is not None, f"{place}: which test holds both together?"
    assert (ROOT / test[1]).is_file(), f"{place}: there is no {test[1]}"
    assert re.search(r"\bsaves?\b|\binstead of\b", tag), f"{place}: what is gained?"
