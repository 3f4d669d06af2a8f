"""Our name among other proxies, and the fields that they cannot take from a request."""

import pytest

from proxy.http.fields import PROTECTED, nominated
from proxy.http.hop import Hop
from proxy.policy.caller_fields import hop_for
from proxy.policy.settings import (
    CallerSource,
    HonouredKey,
    IdempotencySettings,
    Match,
    Origin,
    RouteSettings,
    Settings,
    ThrottleKey,
    ThrottleSettings,
    UpstreamSettings,
)


@pytest.mark.parametrize(
    ("name", "proxy_status"),
    [
        ("holdfast", b"holdfast"),
        ("egress-2.eu", b"egress-2.eu"),
        ("*", b"*"),
        ("2nd", b'"2nd"'),
        ("_x", b'"_x"'),
    ],
)
def test_its_name_is_a_token_in_via_and_a_token_or_string_in_proxy_status(
    name: str, proxy_status: bytes
) -> None:
    hop = Hop(name)
    assert hop.via == b"Via: 1.1 " + name.encode()
    assert hop.proxy_status == proxy_status


@pytest.mark.parametrize(
    ("via", "is_in"),
    [
        (b"1.1 egress", True),
        (b"1.0 a, 1.1 EGRESS (comment), 1.1 b", True),
        (b"HTTP/1.1 egress", True),
        (b"1.1 egress-2", False),
        (b"1.1 egress:80", False),
        (b"1.1 holdfast", False),
        (b"egress", False),
        (b"", False),
    ],
)
def test_it_knows_its_own_name(via: bytes, is_in: bool) -> None:  # noqa: FBT001 - a column
    assert Hop("egress").is_in(via) == is_in


SETTINGS = Settings(
    name="egress",
    upstreams=(
        UpstreamSettings(
            "a",
            (Origin("http", "127.0.0.1", 1),),
            honours_key=HonouredKey("x-once"),
            throttle=ThrottleSettings(key=ThrottleKey(CallerSource.HEADER, "x-team")),
        ),
    ),
    routes=(
        RouteSettings(
            "r",
            Match(headers=(("x-plan", "paid"), ("x-region", "eu-*"))),
            "a",
            throttle=ThrottleSettings(key=ThrottleKey(CallerSource.HEADER, "x-tenant")),
            idempotency=IdempotencySettings(header="x-idem", scope=("x-account",)),
        ),
        RouteSettings(
            "q", Match(), "a", throttle=ThrottleSettings(key=ThrottleKey(CallerSource.QUERY, "q"))
        ),
    ),
)


def test_fields_that_the_file_names_are_protected() -> None:
    hop = hop_for(SETTINGS)
    assert hop.name == b"egress"
    named = {b"x-once", b"x-team", b"x-plan", b"x-region", b"x-tenant", b"x-idem", b"x-account"}
    assert hop.protected == PROTECTED | named
    connection = [b"close, X-Idem, X-Other, x-TENANT, q"]
    assert nominated(connection, hop.protected) == {b"x-other", b"q"}
    assert nominated(connection) == {b"x-idem", b"x-other", b"x-tenant", b"q"}
