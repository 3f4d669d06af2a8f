import pytest

from proxy.config.diagnostics.nearest import nearest
from proxy.config.diagnostics.other_products import SYNONYMS
from proxy.config.schema.file import FILE
from proxy.config.schema.listen import LIMITS
from proxy.config.schema.route import ROUTE
from proxy.config.schema.upstream import UPSTREAM


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        pytest.param("timeuot", "timeout", id="two letters swapped"),
        pytest.param("timout", "timeout", id="a letter left out"),
        pytest.param("timeeout", "timeout", id="a letter too many"),
        pytest.param("timeuots", "timeout", id="two slips"),
        pytest.param("tmeuots", "", id="three slips are another word"),
        pytest.param("key", "", id="two letters of three are another word"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_what_was_probably_meant(word: str, meant: str) -> None:
    assert nearest(word, ["timeout", "ca"]) == meant


def test_a_word_of_ours_is_nowhere_called_a_word_from_elsewhere() -> None:
    for section in (FILE, LIMITS, ROUTE, UPSTREAM):
        assert not SYNONYMS.keys() & section.keys.keys()
