"""Every closed set of words, and every key: a typing error is answered with the word meant."""

from collections.abc import Callable, Iterator

import pytest

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.nearest import meant
from proxy.config.diagnostics.other_products import SYNONYMS
from proxy.config.diagnostics.position import Position, Source
from proxy.config.read.reader import Reader
from proxy.config.schema.file import FILE
from proxy.config.schema.section import ListOf, Section, Shape, TableOf, sections
from proxy.config.source.interpolation import Interpolation
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import ValueType
from tests.config.templates import ROUTE, TOP, UPSTREAM, in_file

HERE = Position(Source("test"), 1, 1)


def value_types() -> Iterator[tuple[str, ValueType[object]]]:
    """Every value type of the file that has words of its own, with the path of its key."""
    for section in sections(FILE):
        for name, key in section.keys.items():
            shape: Shape = key.shape
            while isinstance(shape, ListOf | TableOf):
                shape = shape.item if isinstance(shape, ListOf) else shape.values
            if isinstance(shape, ValueType) and shape.words:
                yield f"{section.name}.{name}", shape


WORDS = {
    f"{path}: {word}": (value_type, word)
    for path, value_type in value_types()
    for word in value_type.words
}


def slips(word: str) -> list[str]:
    """Common typing errors in *word*; short words stand one slip only."""
    middle = len(word) // 2
    return [
        word[:middle] + word[middle + 1] + word[middle] + word[middle + 2 :]
        if middle + 1 < len(word)
        else word + word[-1],
        word[:middle] + word[middle:][:1] + word[middle:],
    ]


def message(value_type: ValueType[object], text: str) -> str:
    diagnostics = Diagnostics()
    Reader(diagnostics, Interpolation({}, lambda _: None)).read(
        Scalar(text, HERE), value_type, "key"
    )
    return "\n".join(map(str, diagnostics.report(()).diagnostics))


def test_there_are_closed_sets_to_look_at() -> None:
    assert len(WORDS) > 60


@pytest.mark.parametrize(("value_type", "word"), WORDS.values(), ids=WORDS.keys())
def test_a_slip_in_a_word_of_a_closed_set(value_type: ValueType[object], word: str) -> None:
    for slip in slips(word):
        if slip in value_type.words or slip in value_type.synonyms or slip == word:
            continue
        said = message(value_type, slip)
        assert f"did you mean {word}" in said or f"write {word}" in said, (slip, said)


def section_keys() -> Iterator[tuple[str, Section, str]]:
    for section in {each.name: each for each in sections(FILE)}.values():
        for key in section.keys:
            if len(key) > 3:
                yield f"{section.name}.{key}", section, key


@pytest.mark.parametrize(
    ("section", "key"), [pytest.param(s, k, id=name) for name, s, k in section_keys()]
)
def test_a_slip_in_a_key(section: Section, key: str) -> None:
    for slip in slips(key):
        if slip in section.keys or slip in SYNONYMS or slip == key:
            continue
        near = meant(slip, section.keys)
        assert near == key, (slip, near)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "near to the word of another product",
            ROUTE.format("retry: {on: [»conection, 503]}"),
            'routes.api.retry.on[0]: "conection" is no outcome, did you mean connect?',
        ),
        in_file(
            "capitals",
            ROUTE.format("retry: {unsafe: »Always}"),
            'routes.api.retry.unsafe: "Always" is none of auto, never, always; did you mean '
            "always?",
        ),
        in_file(
            "a key with another prefix",
            ROUTE.format("retry: {»max_attempts: 3}"),
            "routes.api.retry.max_attempts: unknown key, write attempts: 3",
        ),
        in_file(
            "the same, a level too high",
            ROUTE.format("»max_attempts: 5"),
            "routes.api.max_attempts: unknown key, write retry: {attempts: 5}",
        ),
        in_file(
            "a switch of a section",
            ROUTE.format("retry: »ture"),
            'routes.api.retry: "ture" is neither true nor false, did you mean true?',
        ),
        in_file(
            "a switch in quotes",
            ROUTE.format("retry: »'true'"),
            'routes.api.retry: "true" is text here, write true without quotes',
        ),
        in_file(
            "a unit of time",
            ROUTE.format("timeout: »10secnds"),
            'routes.api.timeout: "secnds" is no unit of time, write 10s',
        ),
        in_file(
            "the source of a key",
            ROUTE.format("throttle: {rate: 5/s, key: »haeder:X-Tenant}"),
            'routes.api.throttle.key: "haeder:X-Tenant" is no key, did you mean header:X-Tenant?',
        ),
        in_file(
            "the source of a scope",
            ROUTE.format("idempotency: {scope: [»heder:X-Tenant]}"),
            'routes.api.idempotency.scope[0]: "heder:X-Tenant" is no scope, did you mean '
            "header:X-Tenant?",
        ),
        in_file(
            "the scheme of a store",
            TOP.format("store: »reddis://h"),
            'store: "reddis" is no store, did you mean redis://?',
        ),
        in_file(
            "the scheme of a file",
            TOP.format("store: »sqllite:./keys.db"),
            'store: "sqllite:./keys.db" is no store, did you mean sqlite:./keys.db?',
        ),
        in_file(
            "the scheme of a socket",
            TOP.format("listen: »unx:/run/a.sock"),
            'listen: "unx:/run/a.sock" is no address to listen on, write unix:/run/a.sock',
        ),
        in_file(
            "a name that is far from every word",
            UPSTREAM.format("{urls: ['http://a.example'], balance: »least_conn}"),
            'upstreams.api.balance: "least_conn" is none of round_robin, first; write one of them',
        ),
    ],
)
def test_line(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


def test_a_number_is_never_meant_as_another() -> None:
    assert meant("500-504", ("500-599",)) == ""
    assert meant("500-599", ("500-599",)) == "500-599"


def test_a_value_from_outside_is_not_shown(only_line: Callable[..., None]) -> None:
    only_line(
        ROUTE.format("timeout: »${T}"),
        "routes.api.timeout: the value of ${T} is no duration in range, write 30s (say)",
        {"T": "noone"},
    )
