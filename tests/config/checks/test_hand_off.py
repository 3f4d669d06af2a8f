"""Hand-off: what comes of what is written, and the lines that mistakes get."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Loaded
from proxy.config.source import files
from proxy.policy.settings import (
    USUAL_DELIVERED,
    USUAL_OUTCOMES,
    BackoffStrategy,
    DeliveriesSettings,
    DeliveryBackoff,
    HandOffCredentials,
    HandOffSettings,
    HandOffWhen,
    JitterStrategy,
    Outcomes,
    UnsafeRetries,
)
from tests.config.templates import LAYERS, ROUTE, TOP, in_file

Load = Callable[..., Loaded]
ASKED, FAILED, ALWAYS = HandOffWhen


def of_route(loaded: Load, keys: str) -> HandOffSettings | None:
    (only,) = loaded(ROUTE.format(keys)).settings.routes
    return only.hand_off


KEYED = "idempotency: {required: true, ttl: 4d}\n    "


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", None, id="named nowhere: off"),
        pytest.param("hand_off: false", None, id="false: off"),
        pytest.param("hand_off: true", HandOffSettings(), id="true: what is built in"),
        pytest.param("hand_off: {}", HandOffSettings(), id="an empty mapping: the same"),
        pytest.param("hand_off: asked", HandOffSettings(), id="the default by its word"),
        pytest.param(
            KEYED + "hand_off: always",
            HandOffSettings(when=frozenset({ALWAYS})),
            id="one word in place of the mapping",
        ),
        pytest.param(
            KEYED + "hand_off: {when: [asked, failed], give_up_after: 2d}",
            HandOffSettings(when=frozenset({ASKED, FAILED}), give_up_after=172_800),
            id="a list of words",
        ),
        pytest.param(
            "hand_off: {methods: [POST, PUT, PATCH, DELETE], max_body: 1MiB, give_up_after: 3d, "
            "attempts: none, retry: {on: [default, 500], backoff: {strategy: exponential, base: "
            "2s, factor: 3, max: 6h, jitter: 0.2}, retry_after: {max: 24h}, unsafe: auto}, "
            "timeout: 30s, success: [2xx, 303], concurrency: 8, keep_response: 64KiB, ttl: 24h, "
            "credentials: refuse, when: asked}",
            HandOffSettings(),
            id="what is built in, spelled out",
        ),
        pytest.param(
            "hand_off: {methods: [PUT], max_body: 1KiB, attempts: 6, timeout: none, success: "
            "[4xx, 200], concurrency: 1, keep_response: 0B, ttl: 1h, credentials: store, retry: "
            "{on: [default], retry_after: false}}",
            HandOffSettings(
                methods=frozenset({"PUT"}),
                max_body=1024,
                attempts=6,
                retry_on=USUAL_OUTCOMES,
                longest_hint=None,
                timeout=None,
                success=frozenset({200, *range(400, 500)}),
                concurrency=1,
                keep_response=0,
                ttl=3600,
                credentials=HandOffCredentials.STORE,
            ),
            id="other values",
        ),
        pytest.param(
            "hand_off: {retry: {backoff: [5s, 5m, 30m, 2h]}}",
            HandOffSettings(backoff=DeliveryBackoff(waits=(5, 300, 1800, 7200))),
            id="a list of waits",
        ),
        pytest.param(
            "hand_off: {retry: {backoff: {waits: [5s], jitter: none}}}",
            HandOffSettings(backoff=DeliveryBackoff(waits=(5,), jitter=JitterStrategy.NONE)),
            id="a list of exact waits",
        ),
        pytest.param(
            "hand_off: {retry: {backoff: {base: 2m, factor: 2, max: 12h, jitter: none}}}",
            HandOffSettings(
                backoff=DeliveryBackoff(base=120, factor=2, max=43_200, jitter=JitterStrategy.NONE)
            ),
            id="the seed's curve",
        ),
        pytest.param(
            "hand_off: {retry: {backoff: {max: 1s}}}",
            HandOffSettings(backoff=DeliveryBackoff(base=1, max=1)),
            id="the base gives way to a written max",
        ),
        pytest.param(
            "timeout: 7s\n    retry: {unsafe: never}\n    hand_off: true",
            HandOffSettings(timeout=7, unsafe=UnsafeRetries.NEVER),
            id="timeout and unsafe are the route's",
        ),
        pytest.param(
            "timeout: 7s\n    retry: {unsafe: never}\n    hand_off: {timeout: 9s, retry: {unsafe: "
            "auto}}",
            HandOffSettings(timeout=9),
            id="unless others are written",
        ),
    ],
)
def test_settings(loaded: Load, written: str, expected: HandOffSettings | None) -> None:
    assert of_route(loaded, written) == expected


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        pytest.param(
            ("hand_off: {attempts: 5, ttl: 1h}", "hand_off: {attempts: 6}", "hand_off: {ttl: 2h}"),
            HandOffSettings(attempts=6, ttl=7200),
            id="key by key",
        ),
        pytest.param(
            ("hand_off: {retry: {on: [default], backoff: {base: 1m, jitter: none}}}", "", ""),
            HandOffSettings(
                retry_on=USUAL_OUTCOMES,
                backoff=DeliveryBackoff(base=60, jitter=JitterStrategy.NONE),
            ),
            id="defaults alone",
        ),
        pytest.param(
            (
                "hand_off: {retry: {backoff: {base: 1m, jitter: none}}}",
                "",
                "hand_off: {retry: {backoff: {factor: 2}, on: [503]}}",
            ),
            HandOffSettings(
                retry_on=Outcomes(frozenset(), frozenset({503})),
                backoff=DeliveryBackoff(base=60, factor=2, jitter=JitterStrategy.NONE),
            ),
            id="at every depth",
        ),
        pytest.param(
            (
                "hand_off: {retry: {backoff: {base: 1m, strategy: linear, jitter: none}}}",
                "",
                "hand_off: {retry: {backoff: [5s, 1m]}}",
            ),
            HandOffSettings(backoff=DeliveryBackoff(waits=(5, 60), jitter=JitterStrategy.NONE)),
            id="a list displaces the curve",
        ),
        pytest.param(
            (
                "hand_off: {retry: {backoff: [5s, 1m]}}",
                "",
                "hand_off: {retry: {backoff: {base: 3s, strategy: linear}}}",
            ),
            HandOffSettings(backoff=DeliveryBackoff(strategy=BackoffStrategy.LINEAR, base=3)),
            id="and a curve the list",
        ),
        pytest.param(("hand_off: {attempts: 5}", "hand_off: false", ""), None, id="switched off"),
        pytest.param(
            ("hand_off: {attempts: 5}", "hand_off: false", "hand_off: true"),
            HandOffSettings(attempts=5),
            id="and on again",
        ),
    ],
)
def test_layers(
    loaded: Load, layers: tuple[str, str, str], expected: HandOffSettings | None
) -> None:
    (only,) = loaded(LAYERS.format(*layers)).settings.routes
    assert only.hand_off == expected


def test_what_is_in_force_shows_the_curve_or_the_list(loaded: Load) -> None:
    def shown(written: str) -> Any:  # noqa: ANN401 - as JSON
        (only,) = loaded(ROUTE.format(written)).effective["routes"]
        return only["hand_off"]["retry"]["backoff"]

    assert shown("hand_off: {retry: {backoff: [5s, 5m]}}") == {"waits": ["5s", "5m"], "jitter": 0.2}
    assert shown("hand_off: true") == {
        "strategy": "exponential",
        "base": "2s",
        "factor": 3,
        "max": "6h",
        "jitter": 0.2,
    }


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("", DeliveriesSettings()),
        ("deliveries: {}", DeliveriesSettings()),
        ("deliveries: {status: false}", DeliveriesSettings(status=None)),
        (
            "deliveries: {status: /jobs, entries: 10, bytes: 1MiB}",
            DeliveriesSettings("/jobs", 10, 1024**2),
        ),
    ],
)
def test_deliveries(loaded: Load, written: str, expected: DeliveriesSettings) -> None:
    assert loaded(TOP.format(written)).settings.deliveries == expected


def test_success_by_class_is_all_of_it() -> None:
    assert frozenset({*range(200, 300), 303}) == USUAL_DELIVERED


QUIET = """\
upstreams: {{payments: {{urls: ["http://127.0.0.1:9000"], honours_key: {{for: 4d}}}}}}
routes:
  - name: api
    match: /**
    upstream: payments
    idempotency: {{required: true, ttl: 4d}}
    dead_letter: true
    {}
"""
"""A route whose hand-off needs no word."""
UNKEYED = QUIET.replace("idempotency: {{required: true, ttl: 4d}}", "idempotency: false")


@pytest.mark.parametrize(
    "written", ["hand_off: true", "hand_off: always", "hand_off: {when: [asked, failed]}"]
)
def test_nothing_to_say(lines: Callable[..., list[str]], written: str) -> None:
    assert lines(QUIET.format(written)) == []


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        # Values
        in_file(
            "a word that is none",
            QUIET.format("hand_off: »never"),
            'routes.api.hand_off.when: "never" is none of asked, failed, always; write one of them',
        ),
        in_file(
            "a word of YAML 1.1",
            QUIET.format('hand_off: »"off"'),
            'routes.api.hand_off: "off" is neither true nor false, write false to switch it off',
        ),
        in_file(
            "no attempt",
            QUIET.format("hand_off: {attempts: »0}"),
            "routes.api.hand_off.attempts: 0 attempts would deliver nothing, write none for no "
            "limit",
        ),
        in_file(
            "too many attempts",
            QUIET.format("hand_off: {attempts: »1001}"),
            "routes.api.hand_off.attempts: 1001 is out of range, write a number from 1 to 1000",
        ),
        in_file(
            "no time",
            QUIET.format("hand_off: {give_up_after: »0s}"),
            "routes.api.hand_off.give_up_after: 0s would deliver nothing, write 3d (say)",
        ),
        in_file(
            "an age without a unit",
            QUIET.format("hand_off: {give_up_after: »3}"),
            "routes.api.hand_off.give_up_after: 3 has no unit, write 3d (or 3h, 3s)",
        ),
        in_file(
            "no wait in a list",
            QUIET.format("hand_off: {retry: {backoff: [5s, »0s]}}"),
            "routes.api.hand_off.retry.backoff[1]: 0s is no wait, write 5s (say)",
        ),
        in_file(
            "an empty list of waits",
            QUIET.format("hand_off: {retry: {backoff: »[]}}"),
            "routes.api.hand_off.retry.backoff: the list is empty, write an item or remove it",
        ),
        in_file(
            "a list and a curve",
            QUIET.format("hand_off: {retry: {backoff: {waits: [5s], »base: 1s}}}"),
            "routes.api.hand_off.retry.backoff.base: it cannot stand beside waits, remove one of "
            "them",
        ),
        in_file(
            "a random walk along a list",
            QUIET.format("hand_off: {retry: {backoff: {waits: [5s], jitter: »decorrelated}}}"),
            "routes.api.hand_off.retry.backoff.jitter: decorrelated jitter follows no list of "
            "waits, write 0.2 (say), full, equal or none",
        ),
        in_file(
            "a success that is none",
            QUIET.format("hand_off: {success: [»1xx]}"),
            "routes.api.hand_off.success[0]: 1xx is no final status, write one from 200 to 599, or "
            "a class: 2xx",
        ),
        in_file(
            "no path for the status",
            TOP.format("deliveries: {status: »/}"),
            "deliveries.status: / would take every request, write /.holdfast/deliveries (say)",
        ),
        in_file(
            "true is no path",
            TOP.format("deliveries: {status: »true}"),
            "deliveries.status: true is no path, write /.holdfast/deliveries or false",
        ),
        in_file(
            "a key of hand_off at the top",
            TOP.format("deliveries: {»give_up_after: 3d}"),
            "deliveries.give_up_after: unknown key, it belongs to hand_off, write it there",
        ),
        # As for retries
        in_file(
            "a base above max",
            QUIET.format("hand_off: {retry: {backoff: {base: »5s, max: 1s}}}"),
            "routes.api.hand_off.retry.backoff.base: 5s is above max 1s, write a base of at most "
            "1s or a larger max",
        ),
        in_file(
            "a key of another strategy",
            QUIET.format("hand_off: {retry: {backoff: {strategy: linear, factor: »2}}}"),
            "routes.api.hand_off.retry.backoff.factor: warning: the strategy is linear and only "
            "exponential uses it, write strategy: exponential or remove it",
        ),
        in_file(
            "a list that replaces the built-in one",
            QUIET.format("hand_off: {retry: {»on: [529]}}"),
            "routes.api.hand_off.retry.on: warning: this list replaces the built-in one, so "
            "connect, refused, reset, timeout, 408, 502, 503, 504 are no longer retried, write on: "
            "[default, 529] to add 529",
        ),
        in_file(
            "what may run twice",
            QUIET.format("hand_off: {retry: {on: [connect, reset], unsafe: »always}}"),
            "routes.api.hand_off.retry.unsafe: warning: a POST is sent again after reset and may "
            "run twice, write unsafe: auto or take these out of on",
        ),
        # Of its own
        in_file(
            "always without a key",
            UNKEYED.format("hand_off: »always"),
            "routes.api.hand_off.when: a client that does not expect 202 sends its POST again, and "
            "without a key that is delivered twice (always), write idempotency: {required: true}, "
            "or methods: [PUT, DELETE] in hand_off",
        ),
        in_file(
            "failed without a required key",
            QUIET.replace("required: true, ", "").format("hand_off: {»when: [asked, failed]}"),
            "routes.api.hand_off.when: a client that does not expect 202 sends its POST again, and "
            "without a key that is delivered twice (failed), write idempotency: {required: true}, "
            "or methods: [PUT, DELETE] in hand_off",
        ),
        in_file(
            "a key is required of other methods",
            QUIET.replace("ttl", "methods: [PATCH], ttl").format("hand_off: {»when: failed}"),
            "routes.api.hand_off.when: a client that does not expect 202 sends its POST again, and "
            "without a key that is delivered twice (failed), write idempotency: {required: true, "
            "methods: [PATCH, POST]}, or methods: [PUT, DELETE] in hand_off",
        ),
        in_file(
            "keys that machines share",
            "store: redis://127.0.0.1:6379\n" + QUIET.format("»hand_off: true"),
            "routes.api.hand_off: the idempotency keys are in Redis and deliveries in a file of "
            "each machine, so two machines could deliver one key, write store: sqlite:PATH, or "
            "hand_off: false",
        ),
        in_file(
            "no letter",
            QUIET.replace("dead_letter: true", "dead_letter: false").format("»hand_off: true"),
            "routes.api.hand_off: warning: a delivery that fails is deleted after its ttl, write "
            "dead_letter: true to keep it for a person",
        ),
        in_file(
            "no honoured key",
            QUIET.replace("honours_key: {{for: 4d}}", "honours_key: false").format(
                "»hand_off: true"
            ),
            "routes.api.hand_off: warning: a POST that may have run is not sent again and fails, "
            "only one that did not run is, write honours_key: true in upstreams.payments if it "
            "runs a request with the same key once",
        ),
        in_file(
            "a key that is not trusted",
            QUIET.format("»hand_off: {retry: {unsafe: never}}"),
            "routes.api.hand_off: warning: a POST that may have run is not sent again and fails, "
            "only one that did not run is, write unsafe: auto in hand_off.retry if the upstream "
            "honours a key",
        ),
        in_file(
            "the upstream forgets a key",
            QUIET.replace("ttl: 4d", "ttl: 30d").format("hand_off: {give_up_after: »100h}"),
            "routes.api.hand_off.give_up_after: warning: the upstream remembers a key for 4d, "
            "which is below hand_off.give_up_after 100h, and what may have run is not sent again "
            "later than that, write a shorter give_up_after, or a longer "
            "upstreams.payments.honours_key.for if it does remember",
        ),
        in_file(
            "a key is forgotten",
            QUIET.replace("ttl: 4d", "ttl: »24h").format("hand_off: true"),
            "routes.api.idempotency.ttl: warning: idempotency.ttl 24h is below "
            "hand_off.give_up_after 3d, so a key may be forgotten before its delivery has ended, "
            "write a longer ttl or a shorter give_up_after",
        ),
        in_file(
            "a key is forgotten, and all is built in",
            QUIET.replace(", ttl: 4d", "").format("»hand_off: true"),
            "routes.api.hand_off: warning: idempotency.ttl 24h is below hand_off.give_up_after 3d, "
            "so a key may be forgotten before its delivery has ended, write a longer ttl or a "
            "shorter give_up_after",
        ),
        in_file(
            "the upstream forgets a key, and all is built in",
            QUIET.replace("{{for: 4d}}", "true").format("»hand_off: true"),
            "routes.api.hand_off: warning: the upstream remembers a key for 24h, which is below "
            "hand_off.give_up_after 3d, and what may have run is not sent again later than that, "
            "write a shorter give_up_after, or a longer upstreams.payments.honours_key.for if it "
            "does remember",
        ),
        in_file(
            "more than is left of what failed",
            QUIET.format("hand_off: {when: failed, max_body: »2MiB}"),
            "routes.api.hand_off.max_body: warning: 2MiB is above buffer 1MiB, and of a request "
            "that failed no more than that is left, write a larger buffer or a smaller max_body",
        ),
        in_file(
            "methods that never come",
            QUIET.replace("/**", "GET /**")
            .replace("idempotency", "# idempotency")
            .format("dead_letter: {methods: [GET]}\n    »hand_off: true")
            .replace("    dead_letter: true\n", ""),
            "routes.api.hand_off: warning: the route matches GET only and hand_off accepts POST, "
            "PUT, PATCH and DELETE, remove it or write methods: [GET] in it",
        ),
        in_file(
            "a route at the status path",
            "upstreams: {payments: {urls: ['http://127.0.0.1:9000'], honours_key: {for: 4d}}}\n"
            "routes:\n"
            "  - {name: own, match: »/.holdfast/**, upstream: payments}\n"
            "  - {name: api, match: /**, upstream: payments, dead_letter: true, hand_off: true}\n",
            "routes.own.match: warning: deliveries.status /.holdfast/deliveries goes first, so "
            "this route gets no request there, write another status or another path",
        ),
    ],
)
def test_messages(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        pytest.param("36 1 8:1 / / rw - ext4 /dev/sda1 rw", None, id="a disk"),
        pytest.param("36 1 0:1 / / rw - tmpfs tmpfs rw", "in memory (tmpfs)", id="memory"),
        pytest.param("36 1 0:1 / / rw - overlay o rw", "in a container's own layer", id="a layer"),
        pytest.param(
            "36 1 0:1 / / rw - overlay o rw\n37 36 8:1 / {folder} rw shared:1 - xfs /dev/sdb rw",
            None,
            id="a volume in a container",
        ),
        pytest.param(
            "36 1 8:1 / / rw - ext4 /dev/sda1 rw\n37 36 0:9 / {folder} rw - tmpfs none rw",
            "in memory (tmpfs)",
            id="memory on a disk",
        ),
        pytest.param(
            "36 1 8:1 / / rw - ext4 /dev/sda1 rw\n37 36 0:9 / {folder}-2 rw - tmpfs none rw",
            None,
            id="memory elsewhere",
        ),
        pytest.param("a table of another system", None, id="no such table"),
    ],
)
def test_storage_that_passes(
    lines: Callable[..., list[str]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    expected: str | None,
) -> None:
    mounts = folder / "mountinfo"
    mounts.write_text(table.format(folder=str(folder.resolve()).replace(" ", "\\040")) + "\n")
    monkeypatch.setattr(files, "MOUNT_TABLE", mounts)
    found = lines("state_dir: ./state\n" + QUIET.format("hand_off: true"))
    if expected is None:
        assert found == []
    else:
        (only,) = found
        assert only.startswith(f"holdfast.yaml:1:12: state_dir: warning: ./state is {expected}, ")
    assert lines("state_dir: ./state\n" + QUIET.format("hand_off: false")) == []


def test_a_state_dir_is_needed(lines: Callable[..., list[str]]) -> None:
    unlettered = QUIET.replace("dead_letter: true", "dead_letter: false")
    first, *_ = lines("state_dir: none/state\n" + unlettered.format("hand_off: true"))
    assert first == (
        "holdfast.yaml:1:12: state_dir: none/state has no folder to be made in, create that or "
        "correct the path"
    )
    assert lines("state_dir: none/state\n" + unlettered.format("hand_off: false")) == []
