"""Throttles: what comes of what is written."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from proxy.config import Loaded
from proxy.config.diagnostics.position import Position, Source
from proxy.config.source.nodes import Scalar
from proxy.config.values.rates import CallRate
from proxy.policy.settings import (
    CallerSource,
    Rate,
    RateAlgorithm,
    ThrottleKey,
    ThrottleSettings,
    ThrottleWithoutStore,
)

Load = Callable[..., Loaded]

HUNDRED = (Rate(100, 1.0),)


def throttle(
    loaded: Load, keys: str, *, defaults: str = "", policy: str = ""
) -> ThrottleSettings | None:
    """Load the settings of the only route of a file, with keys in each of its layers."""
    (only,) = loaded(
        f"upstreams: {{a: 'http://127.0.0.1:1'}}\n"
        f"defaults: {{{defaults}}}\n"
        f"policies: {{p: {{{policy}}}}}\n"
        f"routes: [{{match: /**, upstream: a, policy: p, {keys}}}]\n"
    ).settings.routes
    return only.throttle


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", None, id="nobody said so: off"),
        pytest.param("throttle: false", None, id="false: off"),
        pytest.param("throttle: true", ThrottleSettings(), id="true: obeys pauses, nothing else"),
        pytest.param("throttle: {}", ThrottleSettings(), id="an empty mapping: the same"),
        pytest.param("throttle: 100/s", ThrottleSettings(HUNDRED), id="a rate: that rate"),
        pytest.param("throttle: {rate: 100/s}", ThrottleSettings(HUNDRED), id="the same, long"),
        pytest.param(
            "throttle: {rate: [20/s, 50000/h]}",
            ThrottleSettings((Rate(20, 1.0), Rate(50000, 3600.0))),
            id="several rates",
        ),
        pytest.param("throttle: {rate: none}", ThrottleSettings(), id="no rate, and said so"),
        pytest.param("throttle: {rate: []}", ThrottleSettings(), id="an empty list is no rate"),
        pytest.param(
            "throttle: {rate: 100/s, burst: 20, algorithm: gcra}",
            ThrottleSettings(HUNDRED, burst=20),
            id="a burst",
        ),
        pytest.param(
            "throttle: {rate: 100/s, burst: none, margin: auto}",
            ThrottleSettings(HUNDRED),
            id="no burst, and the usual margin, in so many words",
        ),
        pytest.param(
            "throttle: {rate: 100/s, margin: 30ms}",
            ThrottleSettings(HUNDRED, margin=0.03),
            id="a margin",
        ),
        pytest.param(
            "throttle: {rate: 100/s, margin: 0s}",
            ThrottleSettings(HUNDRED, margin=0.0),
            id="no margin",
        ),
        pytest.param(
            "throttle: {rate: 100/s, algorithm: window, burst: none}",
            ThrottleSettings(HUNDRED, algorithm=RateAlgorithm.WINDOW),
            id="a window without a burst, and said so",
        ),
        pytest.param(
            "throttle: {rate: 5/s, algorithm: window}",
            ThrottleSettings((Rate(5, 1.0),), algorithm=RateAlgorithm.WINDOW),
            id="a window, of any rate",
        ),
        pytest.param(
            "throttle: {concurrency: 4}", ThrottleSettings(concurrency=4), id="concurrency alone"
        ),
        pytest.param(
            "throttle: {concurrency: none, key: none, pause: true, on_store_error: local}",
            ThrottleSettings(),
            id="what is built in, spelled out",
        ),
        pytest.param(
            "throttle: {max_wait: none}", ThrottleSettings(max_wait=None), id="any wait at all"
        ),
        pytest.param(
            "throttle: {max_wait: 0s, max_queue: 0}",
            ThrottleSettings(max_wait=0, max_queue=0),
            id="nobody waits",
        ),
        pytest.param(
            "throttle: {key: client_ip}",
            ThrottleSettings(key=ThrottleKey(CallerSource.CLIENT_IP)),
            id="by client",
        ),
        pytest.param(
            "throttle: {key: header:X-Tenant, max_keys: 5}",
            ThrottleSettings(key=ThrottleKey(CallerSource.HEADER, "x-tenant"), max_keys=5),
            id="by a header, whose name has no case",
        ),
        pytest.param(
            "throttle: {key: 'query:ids[]'}",
            ThrottleSettings(key=ThrottleKey(CallerSource.QUERY, "ids[]")),
            id="by a query parameter, whose name has",
        ),
        pytest.param(
            "throttle: {key: query:Tenant}",
            ThrottleSettings(key=ThrottleKey(CallerSource.QUERY, "Tenant")),
            id="in any letters",
        ),
        pytest.param(
            "throttle: {rate: 100/s, pause: false}",
            ThrottleSettings(HUNDRED, longest_pause=None),
            id="pauses are not obeyed",
        ),
        pytest.param(
            "throttle: {pause: {max: 5m}}", ThrottleSettings(longest_pause=300), id="long pauses"
        ),
        pytest.param(
            "throttle: {on_store_error: closed}",
            ThrottleSettings(on_store_error=ThrottleWithoutStore.CLOSED),
            id="closed without a store",
        ),
    ],
)
def test_throttle(loaded: Load, written: str, expected: ThrottleSettings | None) -> None:
    assert throttle(loaded, written) == expected


@pytest.mark.parametrize(
    ("written", "count", "period"),
    [
        ("100/s", 100, 1),
        ("600/m", 600, 60),
        ("5000/h", 5000, 3600),
        ("7/d", 7, 86400),
        ("3/ms", 3, 0.001),
        ("10/500ms", 10, 0.5),
        ("100/1s", 100, 1),
        ("10/1m30s", 10, 90),
        ("100/0.1s", 100, 0.1),
        ("1000000/s", 1_000_000, 1),
        ("20000000000/30d", 20_000_000_000, 30 * 86400),
        ("1/365d", 1, 365 * 86400),
    ],
)
def test_a_rate(written: str, count: int, period: float) -> None:
    assert CallRate().read(_scalar(written)) == Rate(count, period)


@given(
    count=st.integers(1, 1000),
    milliseconds=st.integers(1, 365 * 86400 * 1000) | st.sampled_from([1000, 60_000, 3_600_000]),
)
def test_a_rate_is_written_as_it_is_read(count: int, milliseconds: int) -> None:
    rate = Rate(count, milliseconds / 1000)
    written = CallRate().write(rate)
    assert CallRate().read(_scalar(written)) == rate


def test_an_upstream_has_one_too(loaded: Load) -> None:
    (only,) = loaded(
        "upstreams:\n"
        "  a: {urls: ['http://127.0.0.1:1'], throttle: {rate: 100/s, max_wait: none}}\n"
        "defaults: {throttle: {max_wait: 1s}}\n"
        "routes: [{match: /**, upstream: a}]\n"
    ).settings.upstreams
    assert only.throttle == ThrottleSettings(HUNDRED, max_wait=None)


@pytest.mark.parametrize(
    ("defaults", "policy", "written", "expected"),
    [
        pytest.param(
            "throttle: {rate: 100/s, burst: 5}",
            "throttle: {max_wait: 1s}",
            "throttle: {burst: 7}",
            ThrottleSettings(HUNDRED, burst=7, max_wait=1),
            id="key by key",
        ),
        pytest.param(
            "throttle: {burst: 5, max_queue: 3}",
            "",
            "throttle: 100/s",
            ThrottleSettings(HUNDRED, burst=5, max_queue=3),
            id="a shorthand sets its one key",
        ),
        pytest.param(
            "throttle: {rate: [50/s, 100/m], burst: 5}",
            "throttle: {rate: 100/s}",
            "",
            ThrottleSettings(HUNDRED, burst=5),
            id="lists replace",
        ),
        pytest.param(
            "throttle: {rate: 100/s, burst: 5}",
            "",
            "throttle: {rate: none, concurrency: 2}",
            ThrottleSettings(burst=5, concurrency=2),
            id="none takes the rate away, and its burst waits",
        ),
        pytest.param(
            "throttle: {rate: 100/s, pause: {max: 5s}}",
            "throttle: {pause: false}",
            "throttle: {pause: true}",
            ThrottleSettings(HUNDRED, longest_pause=5),
            id="pauses off and on again, as long as before",
        ),
        pytest.param("throttle: 100/s", "", "throttle: false", None, id="off for one route"),
        pytest.param(
            "throttle: {rate: 100/s}",
            "throttle: false",
            "throttle: true",
            ThrottleSettings(HUNDRED),
            id="off and on again",
        ),
        pytest.param(
            "throttle: {key: header:X-A}",
            "",
            "throttle: {key: none}",
            ThrottleSettings(),
            id="nobody is told apart on this route",
        ),
    ],
)
def test_precedence(
    loaded: Load, defaults: str, policy: str, written: str, expected: ThrottleSettings | None
) -> None:
    assert throttle(loaded, written, defaults=defaults, policy=policy) == expected


IN_FORCE = """\
upstreams:
  a: {urls: ['http://127.0.0.1:1'], throttle: {concurrency: 3, pause: false}}
  b: http://127.0.0.1:2
defaults: {throttle: {max_wait: 2s}}
routes:
  - {match: /a, upstream: a, throttle: {rate: [100/s, '5/500ms'], burst: 2, key: 'header:X-A'}}
  - {match: /b, upstream: b}
  - {match: /c, upstream: b, throttle: false}
"""


def test_what_is_in_force_is_shown_in_long_form(loaded: Load) -> None:
    shown: dict[str, Any] = loaded(IN_FORCE).effective
    first, second, third = shown["routes"]
    assert first["throttle"] == {
        "rate": ["100/s", "5/500ms"],
        "burst": 2,
        "algorithm": "gcra",
        "margin": "auto",
        "concurrency": "none",
        "max_wait": "2s",
        "max_queue": 1000,
        "key": "header:x-a",
        "max_keys": 10000,
        "pause": {"max": "1m"},
        "on_store_error": "local",
    }
    assert second["throttle"]["rate"] == []
    assert third["throttle"] is False
    assert shown["upstreams"]["a"]["throttle"]["concurrency"] == 3
    assert shown["upstreams"]["a"]["throttle"]["pause"] is False
    assert shown["upstreams"]["b"]["throttle"] is False


def test_what_is_in_force_can_be_written_to_a_file(loaded: Load) -> None:
    found = loaded(IN_FORCE)
    assert loaded(json.dumps(found.effective)).settings == found.settings


def test_values_from_outside(loaded: Load) -> None:
    (only,) = loaded(
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "routes:\n"
        "  - match: /\n"
        "    upstream: a\n"
        "    throttle: {rate: '${N}/s', concurrency: '${N}', key: 'header:${NAME}'}\n",
        {"N": "50", "NAME": "X-Tenant"},
    ).settings.routes
    assert only.throttle == ThrottleSettings(
        (Rate(50, 1.0),), concurrency=50, key=ThrottleKey(CallerSource.HEADER, "x-tenant")
    )


def _scalar(text: str) -> Scalar:
    return Scalar(text, Position(Source("test"), 1, 1))
