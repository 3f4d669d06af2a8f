"""Idempotency: what comes of what is written."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.config import Loaded
from proxy.policy.settings import (
    NEVER_KEPT_BY_CLASS,
    USUAL_KEPT,
    AmbiguousKeys,
    IdempotencySettings,
    InFlightDuplicates,
    KeysWithoutStore,
)

Load = Callable[..., Loaded]

SUCCESSES = frozenset(range(200, 300))
SERVER_ERRORS = frozenset(range(500, 600))


def idempotency(
    loaded: Load, keys: str, *, defaults: str = "", policy: str = ""
) -> IdempotencySettings | None:
    """Load the settings of the only route of a file, with keys in each of its layers."""
    (only,) = loaded(
        f"upstreams: {{a: 'http://127.0.0.1:1'}}\n"
        f"defaults: {{{defaults}}}\n"
        f"policies: {{p: {{{policy}}}}}\n"
        f"routes: [{{match: /**, upstream: a, policy: p, {keys}}}]\n"
    ).settings.routes
    return only.idempotency


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", None, id="nobody said so: off"),
        pytest.param("idempotency: false", None, id="false: off"),
        pytest.param("idempotency: true", IdempotencySettings(), id="true: what is built in"),
        pytest.param("idempotency: {}", IdempotencySettings(), id="an empty mapping: the same"),
        pytest.param(
            "idempotency: {header: Idempotency-Key, methods: [POST, PATCH], required: false, "
            "ttl: 24h, scope: [header:Authorization, header:X-Api-Key], scope_required: false, "
            "in_flight: wait, mismatch_status: 422, keep: [2xx, 3xx, 4xx], on_ambiguous: release, "
            "lease: 30s, max_response: 1MiB, on_store_error: closed}",
            IdempotencySettings(),
            id="what is built in, spelled out",
        ),
        pytest.param(
            "idempotency: {header: X-Request-Token}",
            IdempotencySettings(header="x-request-token"),
            id="another header, whose name has no case",
        ),
        pytest.param(
            "idempotency: {methods: [PUT, DELETE, POST, PUT]}",
            IdempotencySettings(methods=frozenset({"PUT", "DELETE", "POST"})),
            id="other methods",
        ),
        pytest.param(
            "idempotency: {required: true}", IdempotencySettings(required=True), id="required"
        ),
        pytest.param("idempotency: {ttl: 72h}", IdempotencySettings(ttl=259_200), id="for 3 days"),
        pytest.param(
            "idempotency: {scope: [header:X-Tenant, header:Cookie, header:x-tenant]}",
            IdempotencySettings(scope=("x-tenant", "cookie")),
            id="callers by other headers, each once",
        ),
        pytest.param(
            "idempotency: {scope: header:X-Tenant, scope_required: true}",
            IdempotencySettings(scope=("x-tenant",), scope_required=True),
            id="callers by one header, which they need",
        ),
        pytest.param(
            "idempotency: {scope: []}", IdempotencySettings(scope=()), id="all callers are one"
        ),
        pytest.param(
            "idempotency: {in_flight: reject}",
            IdempotencySettings(in_flight=InFlightDuplicates.REJECT),
            id="nobody waits",
        ),
        pytest.param(
            "idempotency: {mismatch_status: 409}",
            IdempotencySettings(mismatch_status=409),
            id="another status for another request",
        ),
        pytest.param(
            "idempotency: {max_response: 0B, lease: 1s}",
            IdempotencySettings(max_response=0, lease=1),
            id="the least of each",
        ),
        pytest.param(
            "idempotency: {on_store_error: open}",
            IdempotencySettings(on_store_error=KeysWithoutStore.OPEN),
            id="open without a store",
        ),
    ],
)
def test_idempotency(loaded: Load, written: str, expected: IdempotencySettings | None) -> None:
    assert idempotency(loaded, written) == expected


def test_held_keys(loaded: Load) -> None:
    (only,) = loaded(
        "store: sqlite:keys.db\n"
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "routes: [{match: /**, upstream: a, idempotency: {on_ambiguous: hold}}]\n"
    ).settings.routes
    assert only.idempotency == IdempotencySettings(on_ambiguous=AmbiguousKeys.HOLD)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("[2xx]", SUCCESSES, id="a class"),
        pytest.param("[2xx, 3xx, 4xx]", USUAL_KEPT, id="those that are built in"),
        pytest.param("[2xx, 5xx]", SUCCESSES | SERVER_ERRORS, id="every 5xx, if that is asked for"),
        pytest.param("[200, 201]", {200, 201}, id="single statuses"),
        pytest.param("[2xx, '404']", SUCCESSES | {404}, id="a status in quotes"),
        pytest.param(
            "[2xx, 3xx, 4xx, 409, 429]",
            USUAL_KEPT | {409, 429},
            id="a number means itself, though a class leaves it out",
        ),
        pytest.param(
            f"[2xx, {', '.join(map(str, sorted(NEVER_KEPT_BY_CLASS)))}]",
            SUCCESSES | NEVER_KEPT_BY_CLASS,
            id="all that classes leave out",
        ),
    ],
)
def test_what_is_kept(loaded: Load, written: str, expected: frozenset[int]) -> None:
    found = idempotency(loaded, f"idempotency: {{keep: {written}}}")
    assert found is not None
    assert found.keep == expected


@pytest.mark.parametrize(
    ("defaults", "policy", "written", "expected"),
    [
        pytest.param(
            "idempotency: {ttl: 1h, required: true}",
            "idempotency: {lease: 5s}",
            "idempotency: {ttl: 2h}",
            IdempotencySettings(ttl=7200, required=True, lease=5),
            id="key by key",
        ),
        pytest.param(
            "idempotency: {scope: [header:X-A, header:X-B], methods: [PUT]}",
            "idempotency: {scope: [header:X-C]}",
            "idempotency: {methods: [POST]}",
            IdempotencySettings(scope=("x-c",), methods=frozenset({"POST"})),
            id="lists replace",
        ),
        pytest.param(
            "idempotency: {ttl: 1h}", "", "", IdempotencySettings(ttl=3600), id="for all routes"
        ),
        pytest.param("idempotency: true", "", "idempotency: false", None, id="off for one route"),
        pytest.param(
            "idempotency: {ttl: 1h}",
            "idempotency: false",
            "idempotency: true",
            IdempotencySettings(ttl=3600),
            id="off and on again",
        ),
    ],
)
def test_precedence(
    loaded: Load, defaults: str, policy: str, written: str, expected: IdempotencySettings | None
) -> None:
    assert idempotency(loaded, written, defaults=defaults, policy=policy) == expected


IN_FORCE = """\
upstreams: {a: 'http://127.0.0.1:1'}
defaults: {idempotency: {ttl: 72h}}
routes:
  - {match: /a, upstream: a, idempotency: {header: X-Key, scope: 'header:X-A', keep: [2xx, 409]}}
  - {match: /b, upstream: a}
  - {match: /c, upstream: a, idempotency: false}
"""


def test_what_is_in_force_is_shown_in_long_form(loaded: Load) -> None:
    shown: dict[str, Any] = loaded(IN_FORCE).effective
    first, second, third = shown["routes"]
    assert first["idempotency"] == {
        "header": "X-Key",
        "methods": ["POST", "PATCH"],
        "required": False,
        "ttl": "3d",
        "scope": ["header:x-a"],
        "scope_required": False,
        "in_flight": "wait",
        "mismatch_status": 422,
        "keep": ["2xx", 409],
        "on_ambiguous": "release",
        "lease": "30s",
        "max_response": "1MiB",
        "on_store_error": "closed",
    }
    assert second["idempotency"]["scope"] == ["header:authorization", "header:x-api-key"]
    assert third["idempotency"] is False


def test_what_is_in_force_can_be_written_to_a_file(loaded: Load) -> None:
    found = loaded(IN_FORCE)
    assert loaded(json.dumps(found.effective)).settings == found.settings


def test_values_from_outside(loaded: Load) -> None:
    (only,) = loaded(
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "routes:\n"
        "  - match: /\n"
        "    upstream: a\n"
        "    idempotency:\n"
        "      header: ${NAME}\n"
        "      scope: ['header:${NAME}']\n"
        "      required: ${ON}\n"
        "      mismatch_status: ${N}\n"
        "      keep: [2xx, '${N}']\n"
        "      ttl: ${T}\n",
        {"NAME": "X-Tenant", "ON": "true", "N": "409", "T": "5m"},
    ).settings.routes
    assert only.idempotency == IdempotencySettings(
        header="x-tenant",
        scope=("x-tenant",),
        required=True,
        mismatch_status=409,
        keep=SUCCESSES | {409},
        ttl=300,
    )
