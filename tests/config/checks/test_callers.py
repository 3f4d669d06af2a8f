"""Lists where one value is wanted: the line that warns of them. » marks the position."""

from collections.abc import Callable

import pytest

from tests.config.templates import ROUTE, UPSTREAM

LIST = "warning: {} is a list and may come in several lines, and such a request gets 400 here, {}"
ANOTHER = "write one that has a single value"
BY_ADDRESS = "write key: client_ip, and the proxies before us in trusted_proxies"


@pytest.mark.parametrize(
    ("marked", "path", "name", "instead"),
    [
        pytest.param(
            ROUTE.format("throttle: {rate: 100/s, key: »header:X-Forwarded-For}"),
            "routes.api.throttle.key",
            "X-Forwarded-For",
            BY_ADDRESS,
            id="addresses",
        ),
        pytest.param(
            ROUTE.format("throttle: {rate: 100/s, key: »header:accept-language}"),
            "routes.api.throttle.key",
            "Accept-Language",
            ANOTHER,
            id="a key of a route",
        ),
        pytest.param(
            UPSTREAM.format(
                "{urls: ['http://a.example'], throttle: {rate: 100/s, key: »header:Via}}"
            ),
            "upstreams.api.throttle.key",
            "Via",
            ANOTHER,
            id="a key of an upstream",
        ),
        pytest.param(
            ROUTE.format("idempotency: {scope: [header:X-Tenant, »header:Forwarded]}"),
            "routes.api.idempotency.scope[1]",
            "Forwarded",
            ANOTHER,
            id="a scope",
        ),
    ],
)
def test_a_list_tells_callers_apart_badly(
    only_line: Callable[..., None], marked: str, path: str, name: str, instead: str
) -> None:
    only_line(marked, f"{path}: {LIST.format(name, instead)}")


EXACT = """\
upstreams: {{a: "http://127.0.0.1:1"}}
routes:
  - {{name: api, upstream: a, match: {{path: /v1/**, headers: {{Accept: {}}}}}}}
"""


def test_a_list_is_matched_by_its_beginning_at_best(
    only_line: Callable[..., None], lines: Callable[..., list[str]]
) -> None:
    expected = f"routes.api.match.headers.Accept: {LIST.format('Accept', ANOTHER)}"
    only_line(EXACT.format("»text/html"), expected)
    assert lines(EXACT.format("text/*")) == []


def test_what_is_switched_off_gets_no_word(lines: Callable[..., list[str]]) -> None:
    assert lines(ROUTE.format("idempotency: false")) == []
