"""What a request must not repeat, because its route goes by the one value."""

import pytest

from proxy.http.refusal import RefusalReason
from proxy.policy.caller_fields import display_name, single_fields
from proxy.policy.settings import (
    CallerSource,
    FallbackSettings,
    Match,
    Origin,
    Outcomes,
    RouteSettings,
    ThrottleKey,
    ThrottleSettings,
    UpstreamSettings,
)

BY_HEADER = ThrottleSettings(key=ThrottleKey(CallerSource.HEADER, "x-api-key"))
BY_QUERY = ThrottleSettings(key=ThrottleKey(CallerSource.QUERY, "key"))
BY_ADDRESS = ThrottleSettings(key=ThrottleKey(CallerSource.CLIENT_IP))


def upstream(throttle: ThrottleSettings | None = None) -> UpstreamSettings:
    return UpstreamSettings("up", (Origin("http", "127.0.0.1", 1),), throttle=throttle)


def route(
    throttle: ThrottleSettings | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> RouteSettings:
    return RouteSettings("all", Match(headers=headers), "up", throttle=throttle)


@pytest.mark.parametrize(
    ("of_route", "of_upstream"),
    [
        pytest.param(route(), upstream(), id="no throttle"),
        pytest.param(route(ThrottleSettings()), upstream(ThrottleSettings()), id="no key"),
        pytest.param(route(BY_ADDRESS), upstream(BY_ADDRESS), id="by address"),
        pytest.param(route(headers=(("accept", "text/*"),)), upstream(), id="a beginning"),
    ],
)
def test_most_routes_go_by_no_field(of_route: RouteSettings, of_upstream: UpstreamSettings) -> None:
    assert single_fields(of_route, [of_upstream]) is None


@pytest.mark.parametrize(
    ("of_route", "of_upstreams"),
    [
        pytest.param(route(BY_HEADER), [upstream()], id="the route's key"),
        pytest.param(route(), [upstream(BY_HEADER)], id="the upstream's key"),
        pytest.param(route(), [upstream(), upstream(BY_HEADER)], id="the fallback's key"),
        pytest.param(route(headers=(("x-api-key", "a"),)), [upstream()], id="an exact match"),
    ],
)
@pytest.mark.parametrize(
    ("lines", "is_refused"),
    [
        ([b"X-Api-Key: a"], False),
        ([b"X-Api-Key: a", b"X-Other: b", b"X-Other: b"], False),
        ([b"X-Api-Key: a", b"Accept: */*", b"x-api-KEY: a"], True),
        ([b"X-Api-Key: a", b"X-Api-Key:"], True),
        ([b"X-Api-Key: a", b"X_API-Key: b"], True),
        ([], False),
    ],
)
def test_a_header_field(
    of_route: RouteSettings,
    of_upstreams: list[UpstreamSettings],
    lines: list[bytes],
    is_refused: bool,  # noqa: FBT001 - a column
) -> None:
    single = single_fields(of_route, of_upstreams)
    assert single is not None
    headers = tuple((name, value.strip()) for name, _, value in (x.partition(b":") for x in lines))
    refusal = single.refusal(headers, "/?key=a&key=b")
    assert (refusal is not None) == is_refused
    if refusal is not None:
        assert (refusal.reason, refusal.status) == (RefusalReason.BAD_REQUEST, 400)
        assert "X-Api-Key" in refusal.detail


@pytest.mark.parametrize("second", [b"X-Api-Key", b"x_api_key"])
def test_a_field_that_the_file_names_with_an_underscore(second: bytes) -> None:
    single = single_fields(route(headers=(("x_api_key", "a"),)), [upstream()])
    assert single is not None
    assert single.refusal(((b"X_Api_Key", b"a"),), "/") is None
    assert single.refusal(((b"X_Api_Key", b"a"), (second, b"b")), "/") is not None


@pytest.mark.parametrize(
    ("target", "is_refused"),
    [
        ("/", False),
        ("/?key=a", False),
        ("/?key=a&keys=b&xkey=c&Key=d", False),
        ("/?key=a&key=b", True),
        ("/?key=a&key=a", True),
        ("/?key=a&x=1&%6bey=b", True),
        ("/?key&key=a", True),
        ("/?x=?key=1&key=a", False),
    ],
)
@pytest.mark.parametrize("of", ["route", "upstream"])
def test_a_query_parameter(of: str, target: str, is_refused: bool) -> None:  # noqa: FBT001 - a column
    of_route = route(BY_QUERY if of == "route" else None)
    single = single_fields(of_route, [upstream(BY_QUERY if of == "upstream" else None)])
    assert single is not None
    refusal = single.refusal(((b"Key", b"a"), (b"Key", b"b")), target)
    assert (refusal is not None) == is_refused


def test_a_fallback_is_one_of_the_upstreams_that_the_caller_lists() -> None:
    fallback = FallbackSettings(Outcomes(frozenset()), upstream="other")
    with_fallback = RouteSettings("all", Match(), "up", fallback=fallback)
    assert single_fields(with_fallback, [upstream()]) is None
    assert single_fields(with_fallback, [upstream(), upstream(BY_QUERY)]) is not None


def test_names_are_shown_as_people_write_them() -> None:
    assert display_name("x-api-key") == "X-Api-Key"
