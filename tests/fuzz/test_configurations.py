"""Any configuration that is accepted can be started, served from, reloaded to and drained."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.fuzz.stage import in_a_loop
from tests.support import RunningProxy, ScriptedUpstream, WireEnded, request, running
from tests.support.depth import fewer

_durations = st.sampled_from(["1ms", "20ms", "1s", "1m30s", "300d"])
_or_none = _durations | st.just("none")
_sizes = st.sampled_from(["1KiB", "64KiB", "1GiB"])
_names = st.sampled_from(["X-Colour", "Server", "X-Request-Id", "Accept", "User-Agent"])
_edits = st.fixed_dictionaries(
    {},
    optional={
        "set": st.dictionaries(_names, st.sampled_from(["", "red", "a, b"]), max_size=2),
        "remove": st.lists(_names, max_size=2, unique=True),
    },
)
_outcomes = st.lists(
    st.sampled_from(["default", "connect", "reset", "protocol", 503, "5xx", "403+hint"]),
    min_size=1,
    max_size=3,
)
_retries = (
    st.booleans()
    | st.integers(1, 3)
    | st.fixed_dictionaries(
        {},
        optional={
            "attempts": st.integers(1, 3),
            "on": _outcomes,
            "unsafe": st.sampled_from(["auto", "never", "always"]),
            "backoff": st.fixed_dictionaries(
                {},
                optional={
                    "strategy": st.sampled_from(["exponential", "linear", "constant", "fibonacci"]),
                    "base": st.sampled_from(["0s", "1ms"]),
                    "max": st.sampled_from(["1ms", "20ms"]),
                    "jitter": st.sampled_from(["full", "equal", "decorrelated", "none", 0.5]),
                },
            ),
            "retry_after": st.sampled_from([True, False, {"max": "1s"}]),
        },
    )
)
_fallbacks = st.just(False) | st.fixed_dictionaries(  # noqa: FBT003 - what the file says
    {"status": st.sampled_from([200, 503])},
    optional={"on": _outcomes, "headers": st.just({"X-Colour": "grey"}), "body": st.just("later")},
)
_idempotency = st.booleans() | st.fixed_dictionaries(
    {},
    optional={
        "header": st.sampled_from(["Idempotency-Key", "X-Request-Id"]),
        "methods": st.sampled_from([["POST"], ["PUT", "DELETE"]]),
        "ttl": _durations,
        "scope": st.sampled_from([[], ["header:Accept"], "header:X-Colour"]),
        "in_flight": st.sampled_from(["wait", "reject"]),
        "mismatch_status": st.sampled_from([422, 409]),
        "keep": st.lists(st.sampled_from(["2xx", "4xx", "5xx", 409]), min_size=1, max_size=2),
        "on_ambiguous": st.sampled_from(["release", "hold"]),
        "lease": st.sampled_from(["1s", "1m30s"]),
        "max_response": _sizes | st.just("0B"),
        "on_store_error": st.sampled_from(["closed", "open"]),
    },
)
_policies = st.fixed_dictionaries(
    {},
    optional={
        "strip_prefix": st.sampled_from(["/v1", "/v1/a"]),
        "timeout": _or_none,
        "idle_timeout": _or_none,
        "max_body": _sizes | st.sampled_from(["0B", "none"]),
        "upgrades": st.sampled_from([[], ["websocket"]]),
        "headers": st.fixed_dictionaries({}, optional={"request": _edits, "response": _edits}),
        "buffer": _sizes | st.just("0B"),
        "retry": _retries,
        "idempotency": _idempotency,
        "fallback": _fallbacks,
    },
)
_matches = st.fixed_dictionaries(
    {"path": st.sampled_from(["/v1/**", "/**", "/*/a", ["/v1", "/v1/a/b"]])},
    optional={
        "methods": st.sampled_from([["GET"], ["POST", "PUT"]]),
        "host": st.sampled_from(["a.example", "*.example", ["b.example", "[::1]"]]),
        "headers": st.dictionaries(_names, st.sampled_from(["", "x*", "*"]), max_size=2),
    },
)


@st.composite
def _files(draw: st.DrawFn) -> dict[str, Any]:
    """All of a file but its addresses: these belong to the test."""
    upstream = st.fixed_dictionaries(
        {},
        optional={
            "balance": st.sampled_from(["round_robin", "first"]),
            "connect_timeout": _durations,
            "idle_connections": st.integers(0, 3),
            "max_connections": st.integers(1, 3),
            "keepalive": _durations,
            "host": st.sampled_from(["upstream", "preserve"]),
            "tls": st.sampled_from([{"verify": False}, {"server_name": "b.example"}]),
            "honours_key": st.sampled_from([True, False, "X-Request-Id"]),
            "refused": st.sampled_from([[], [429, 503]]),
            "budget": st.sampled_from([True, False, {"ratio": 0, "min_per_second": 0.5}]),
            "breaker": st.sampled_from([True, False, {"min_requests": 1, "open_for": "1ms"}]),
        },
    )
    file: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "drain_timeout": _durations,
                "drain_delay": st.sampled_from(["0s", "5ms"]),
                "access_log": st.sampled_from(["notable", "all", "none"]),
                "trusted_proxies": st.sampled_from([[], ["127.0.0.0/8"], ["::1", "unix"]]),
                "limits": st.fixed_dictionaries(
                    {},
                    optional={
                        "header_bytes": _sizes,
                        "header_timeout": _durations,
                        "body_rate": st.sampled_from(["none", "1B/s", "500B/s", "1KiB/s"]),
                        "keepalive": _durations,
                        "connections": st.integers(1, 9),
                        "replay_memory": _sizes | st.just("0B"),
                    },
                ),
                "defaults": _policies,
            },
        )
    )
    file["policies"] = {"p": draw(_policies)}
    file["upstreams"] = {"u": draw(upstream), "v": draw(upstream)}
    file["routes"] = [draw(_routes(number)) for number in range(draw(st.integers(0, 3)))]
    return file


@st.composite
def _routes(draw: st.DrawFn, number: int) -> dict[str, Any]:
    first, other = draw(st.permutations(["u", "v"]))
    route = {
        "name": f"r{number}",
        "match": draw(_matches),
        "upstream": first,
        "policy": draw(st.sampled_from([[], ["p"]])),
        **draw(_policies),
    }
    # These two are good or bad by what is beside them.
    if draw(st.booleans()):
        route["fallback"] = {"upstream": other}
    if draw(st.booleans()):
        route |= {"timeout": "1s", "retry": {"attempt_timeout": "20ms"}}
    return route


def _text(file: dict[str, Any], upstream: ScriptedUpstream) -> str:
    urls = [upstream.url, f"{upstream.url}/base"]
    upstreams = {name: {"urls": urls, **keys} for name, keys in file["upstreams"].items()}
    whole = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "drain_timeout": "1s",
        **file,
        "upstreams": upstreams,
    }
    return "\n".join(f"{key}: {json.dumps(value)}" for key, value in whole.items())


async def _use(proxy: RunningProxy) -> None:
    """A few requests; with a millisecond for everything not each gets its answer."""
    for method, target in [("GET", "/v1/a"), ("POST", "/v1/a/b"), ("GET", "/x/a"), ("PUT", "/")]:
        body = None if method == "GET" else b"body"
        async with proxy.client() as client:
            await client.send(request(method, target, body=body))
            with suppress(WireEnded):
                response = await client.response(method)
                assert response.status in (200, 404, 408, 413, 502, 503, 504)
            assert not client.wire.unread, "half a head"


async def _check(files: list[dict[str, Any]]) -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(_text(files[0], upstream)) as proxy,
    ):
        await _use(proxy)
        for file in files[1:]:
            proxy.config.write_text(_text(file, upstream))
            ended = await proxy.app.reload()
            assert ended.in_force, ended.faults
            await _use(proxy)


@pytest.mark.timeout(3600)
def test_whatever_is_accepted_can_be_used() -> None:
    with in_a_loop() as run:

        @fewer(15)
        @given(st.lists(_files(), min_size=1, max_size=3))
        def property_(files: list[dict[str, Any]]) -> None:
            run(_check(files))

        property_()
