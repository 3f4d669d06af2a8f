"""What ``explain`` foretells is what a proxy does, for the same chance and the same outcomes.

For each configuration, each script is played twice: by ``explain``, and by an upstream behind
a running proxy. Attempts, reasons, waits, the client's answer and whether the request becomes a
dead letter must be the same.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from proxy.cli.request_args import read_field, read_outcome, read_request
from proxy.config import load_with_origins
from proxy.explain.course import Course
from proxy.explain.explanation import explain_request
from proxy.policy.attempt import FailureKind
from proxy.policy.idempotency.retention import KeyOutcome
from proxy.simulation.scripted_peer import ScriptedOutcome
from tests.support import (
    Behaviour,
    ScriptedUpstream,
    answer_and_close,
    answer_and_reset,
    hang,
    one_route,
    request,
    reset,
    response,
    running,
)
from tests.support.clock import FakeClock
from tests.support.ports import refusing_port
from tests.support.proxies import LogRecord

QUICK = "backoff: {base: 10ms}"
KEY = "Idempotency-Key: 4711"
FAILURES = {
    FailureKind.RESET: reset,
    FailureKind.TIMEOUT: hang,
    FailureKind.PROTOCOL: answer_and_close(b"HTTP/1.1 two hundred\r\n\r\n"),
    FailureKind.TRUNCATED: answer_and_reset(
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
    ),
}


@dataclass(frozen=True)
class Setup:
    """One configuration and the requests that are made under it."""

    route: str
    options: str = ""
    requests: tuple[tuple[str, ...], ...] = (("GET",), ("POST",), ("POST", KEY))
    """Each a method and header fields."""
    # Whatever comes after the script is good.
    scripts: tuple[str, ...] = (
        "200",
        "503 503 503",
        "reset 200",
        "500",
        "404",
        "503 429:retry-after-ms=15",
    )
    roll: float = 0.5


SETUPS = {
    "the defaults, but quick": Setup(
        f"retry: {{{QUICK}}}",
        scripts=("200", "503 503 503", "reset 503 200", "500", "404", "protocol", "truncated"),
    ),
    "more attempts, another roll": Setup(
        f"retry: {{attempts: 5, {QUICK}}}", scripts=("503 502 504 408 503", "503 200"), roll=0.9
    ),
    "a longer list": Setup(f"retry: {{on: [default, 500, 4xx, protocol], {QUICK}}}"),
    "only resets": Setup(
        "retry: {on: [reset], backoff: {base: 5ms, strategy: linear, jitter: 0.4}}",
        scripts=("reset reset reset", "503", "reset 503"),
    ),
    "hints": Setup(
        f"retry: {{{QUICK}, retry_after: {{max: 1s}}}}",
        scripts=(
            "429:retry-after-ms=30 200",
            "429:retry-after=2",
            "503:retry-after-ms=20,x-should-retry=false",
            "418:x-should-retry=true 200",
            "503:retry-after-ms=20 503:retry-after-ms=10 503",
        ),
    ),
    "no hints": Setup(
        "retry: {retry_after: false, backoff: {base: 5ms, jitter: none}}",
        scripts=("503:retry-after=60 200",),
    ),
    "hinted statuses": Setup(
        f"retry: {{on: [default, 403+hint], {QUICK}}}",
        scripts=("403 200", "403:retry-after-ms=20 200"),
    ),
    "attempts that time out": Setup(
        f"timeout: 5s\nretry: {{attempt_timeout: 90ms, {QUICK}}}",
        scripts=("timeout 200", "timeout timeout timeout", "503 timeout 200"),
    ),
    "no time": Setup(
        "timeout: 150ms\nretry: {backoff: {base: 200ms, jitter: none}}",
        scripts=("503", "timeout", "429:retry-after=1"),
    ),
    "an upstream that honours keys": Setup(
        f"retry: {{{QUICK}}}",
        "honours_key: true\nrefused: [429, 503, 529]",
        requests=(("POST",), ("POST", KEY), ("PATCH", KEY, KEY), ("PURGE", KEY)),
        scripts=("reset 200", "503 200", "529 200", "502 200"),
    ),
    "unsafe: always": Setup(f"retry: {{unsafe: always, {QUICK}}}"),
    "unsafe: never": Setup(f"retry: {{unsafe: never, {QUICK}}}"),
    "a budget of one": Setup(
        f"retry: {{attempts: 4, {QUICK}}}", "budget: {ratio: 0, min_per_second: 0.1}"
    ),
    "decorrelated": Setup(
        "retry: {attempts: 4, backoff: {base: 5ms, jitter: decorrelated}}",
        scripts=("503 503 503 503",),
        roll=0.8,
    ),
    "a fallback": Setup(f"retry: {{{QUICK}}}\nfallback: {{status: 203, body: x}}"),
    "nothing but a fallback": Setup("fallback: {status: 203, body: x}"),
    "keys": Setup(f"retry: {{{QUICK}}}\nidempotency: {{required: true}}"),
    "a throttle that lets one through": Setup(
        f"retry: {{{QUICK}}}\nthrottle: {{rate: 1/h, burst: 1, max_wait: 1s}}"
    ),
    "a throttle for the upstream": Setup(
        f"retry: {{{QUICK}}}", "throttle: {rate: 1/h, burst: 2, max_wait: 1s}"
    ),
    "a refusal that makes everybody wait": Setup(
        f"timeout: 1s\nretry: {{{QUICK}}}\nthrottle: true",
        scripts=("429:retry-after-ms=30 200", "429:retry-after=2"),
    ),
    "a pause that the retry itself would not have heeded": Setup(
        "retry: {retry_after: false, backoff: {base: 5ms, max: 5ms}}\nthrottle: {max_wait: 100ms}",
        scripts=("429:retry-after=2", "429:retry-after-ms=40"),
    ),
    "a budget of one retry for each request": Setup(
        f"retry: {{attempts: 4, {QUICK}}}", "budget: {ratio: 1, min_per_second: 0}"
    ),
    "a throttle with a short line": Setup(
        f"retry: {{{QUICK}}}\nthrottle: {{rate: 30/s, burst: 1}}", scripts=("503 503 200",)
    ),
    "no retries": Setup("idle_timeout: 1m"),
    "dead letters": Setup(
        f"retry: {{on: [default, 403+hint], {QUICK}}}\ndead_letter: true",
        scripts=(
            "200",
            "503 503 503",
            "reset reset reset",
            "500",
            "404",
            "403",
            "protocol",
            "truncated",
            "503 403:retry-after-ms=15 403:retry-after-ms=15",
            "503:x-should-retry=false",
        ),
    ),
    "dead letters of GET, without retries": Setup("dead_letter: {methods: [GET]}"),
    "dead letters before a fallback": Setup(
        "fallback: {status: 203, on: [500, 503]}\ndead_letter: true"
    ),
    "dead letters of what was let through": Setup(
        f"retry: {{{QUICK}}}\ndead_letter: true\nthrottle: {{rate: 1/h, burst: 1, max_wait: 1s}}"
    ),
}


@pytest.mark.parametrize("setup", [pytest.param(setup, id=name) for name, setup in SETUPS.items()])
async def test_explain_foretells_what_a_proxy_does(setup: Setup, tmp_path: Path) -> None:
    for request_line in setup.requests:
        for script in setup.scripts:
            words = [*script.split(), *["200"] * 5]
            await assert_forecast(setup, request_line, words, tmp_path / "holdfast.yaml")


async def assert_forecast(
    setup: Setup, request_line: tuple[str, ...], script: list[str], file: Path
) -> None:
    outcomes = [read_outcome(word) for word in script]
    async with ScriptedUpstream() as upstream:
        upstream.script(*map(behaviour, outcomes))
        config = one_route(upstream, setup.route, options=setup.options)
        course = await forecast_of(config, request_line, script, setup.roll, file)
        assert course.is_over
        assert happened(course) == await done(config, request_line, setup.roll), (
            f"{request_line} {script}"
        )


# Anything that can be written, in any combination; no wait of ours is longer than 25 ms.
CHOICES = {
    "timeout": "none | 600ms | 5s",
    "attempts": "1 | 2 | 3 | 4",
    "on": "[default] | [default,5xx,4xx,protocol] | [503,reset] | [connect,refused,403+hint]",
    "unsafe": "auto | never | always",
    "base": "0s | 5ms | 20ms",
    "strategy": "exponential | linear | constant | fibonacci",
    "jitter": "full | equal | none | decorrelated | 0.5",
    "retry_after": "true | false | {max: 25ms}",
    "throttle": "false | true | {rate: 40/s,burst: 1} | {rate: 1/h,burst: 2}",
    "idempotency": "false | true | {required: true,scope_required: true}",
    "fallback": "false | {status: 203} | {status: 203,on: [500,429+hint]}",
    "honours_key": "true | false",
    "refused": "[421,425,429] | [429,503]",
    "budget": "true | {ratio: 0,min_per_second: 0.1}",
    "dead_letter": "false | true",
}
REQUESTS = (("GET",), ("POST",), ("POST", KEY), ("PATCH", KEY, "Authorization: a"), ("DELETE", KEY))
WORDS = (
    "200 404 403 421 425 500 503 503:retry-after=0 503:retry-after-ms=20 503:retry-after-ms=40 "
    "429:retry-after-ms=10 429:retry-after=70 403:retry-after-ms=15 502:x-should-retry=false "
    "404:x-should-retry=true reset protocol truncated"
)


@pytest.mark.parametrize("seed", range(60))
async def test_at_random(seed: int, tmp_path: Path) -> None:
    dice = Random(seed)
    chosen = {key: dice.choice(values.split(" | ")) for key, values in CHOICES.items()}
    setup = Setup(
        "timeout: {timeout}\n"
        "retry: {{attempts: {attempts}, on: {on}, unsafe: {unsafe}, retry_after: {retry_after},\n"
        "  backoff: {{base: {base}, max: 25ms, strategy: {strategy}, jitter: {jitter}}}}}\n"
        "throttle: {throttle}\nidempotency: {idempotency}\nfallback: {fallback}\n"
        "dead_letter: {dead_letter}".format(**chosen),
        "honours_key: {honours_key}\nrefused: {refused}\nbudget: {budget}".format(**chosen),
        roll=dice.choice((0.0, 0.3, 0.99)),
    )
    script = [*dice.choices(WORDS.split(), k=4), *["200"] * 5]
    await assert_forecast(setup, dice.choice(REQUESTS), script, tmp_path / "holdfast.yaml")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_connection(method: str, tmp_path: Path) -> None:
    with refusing_port() as port:
        config = one_route(f"http://127.0.0.1:{port}", f"retry: {{{QUICK}}}")
        course = await forecast_of(
            config, (method,), ["connect"] * 3, 0.5, tmp_path / "holdfast.yaml"
        )
        assert happened(course) == await done(config, (method,), 0.5)


@pytest.mark.parametrize("fields", [(), (KEY,)])
@pytest.mark.parametrize("script", ["200", "503 503 503", "reset reset reset", "502", "500", "429"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_upstream_is_asked(
    method: str, script: str, fields: tuple[str, ...], tmp_path: Path
) -> None:
    words, request_line = script.split(), (method, *fields)
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as other:
        upstream.script(*(behaviour(read_outcome(word)) for word in words))
        upstream.usual = behaviour(read_outcome(words[-1]))
        route = "retry: {backoff: {base: 1ms, max: 1ms}}\nfallback: {upstream: other}"
        top = f"upstreams:\n  other: {{urls: ['{other.url}'], honours_key: true}}"
        config = one_route(upstream, route, options="honours_key: true")
        config = config.replace("upstreams:", top)
        course = await forecast_of(config, request_line, words * 3, 0.5, tmp_path / "holdfast.yaml")
        _, _, *attempts = await done(config, request_line, 0.5)
        assert course.falls_back == (len(other.requests) == 1)
        assert len(attempts) == len(course.attempts) + course.falls_back


DUPLICATE = {
    KeyOutcome.KEPT: "replayed",
    KeyOutcome.UNSTORED: "unstored",
    KeyOutcome.AMBIGUOUS: "held",
    KeyOutcome.FREE: "new",
}
"""What a key means for a duplicate, by what becomes of it."""


@pytest.mark.parametrize(
    ("script", "fate"),
    [
        ("201", KeyOutcome.KEPT),
        ("429:retry-after-ms=1 404", KeyOutcome.KEPT),
        ("401", KeyOutcome.FREE),
        ("429:retry-after-ms=1 " * 3, KeyOutcome.FREE),
        ("reset", KeyOutcome.AMBIGUOUS),
        ("503", KeyOutcome.AMBIGUOUS),
        ("429:retry-after-ms=1 500", KeyOutcome.AMBIGUOUS),
        ("truncated", KeyOutcome.UNSTORED),
    ],
)
async def test_what_becomes_of_a_key(script: str, fate: KeyOutcome, tmp_path: Path) -> None:
    words = script.split()
    route = f"retry: {{{QUICK}}}\nidempotency: {{on_ambiguous: hold}}"
    async with ScriptedUpstream() as upstream:
        upstream.script(*(behaviour(read_outcome(word)) for word in words))
        config = one_route(upstream, route)
        course = await forecast_of(config, ("POST", KEY), words, 0.5, tmp_path / "holdfast.yaml")
        assert course.key_outcome is fate
        async with running(config) as proxy:
            for number in (1, 2):
                async with proxy.client() as client:
                    await client.send(request("POST", "/x", KEY, body=b"hi"))
                    record = (await proxy.logged(number))[-1]
            assert record["idempotency"] == DUPLICATE[fate]


async def forecast_of(
    config: str, request_line: tuple[str, ...], script: list[str], roll: float, file: Path
) -> Course:
    """What ``explain`` says; it has an event loop of its own, so it runs in a thread."""
    return await asyncio.to_thread(explained, config, request_line, script, roll, file)


def explained(
    config: str, request_line: tuple[str, ...], script: list[str], roll: float, file: Path
) -> Course:
    file.write_text(config)
    loaded, origins = load_with_origins([file], {})
    method, *fields = request_line
    body = () if method == "GET" else ("Content-Length: 2",)
    typed = read_request(method, "/x", [read_field(field) for field in (*fields, *body)])
    explanation = explain_request(typed, loaded.settings, origins)
    explanation.play([read_outcome(word) for word in script], tuple(script), roll, 1.8e9)
    assert explanation.forecast is not None
    (way,) = explanation.forecast.endings
    return way.course


async def done(config: str, request_line: tuple[str, ...], roll: float) -> list[object]:
    """What a proxy does."""
    clock = FakeClock()
    clock.chance = roll
    method, *fields = request_line
    async with running(config, clock=clock) as proxy, proxy.client() as client:
        body = None if method == "GET" else b"hi"
        await client.send(request(method, "/x", *fields, body=body))
        (record,) = await proxy.logged()
    return recorded(record)


def behaviour(outcome: ScriptedOutcome) -> Behaviour:
    if outcome.kind is not None:
        return FAILURES[outcome.kind]
    fields = [field.decode() for field in outcome.fields]
    # Closed, because a used connection that is reset is another matter.
    return answer_and_close(response(outcome.status, b"", *fields, "Connection: close"))


def happened(course: Course) -> list[object]:
    """What the client gets, whether there is a letter, reason and wait of each attempt."""
    attempts = [
        (
            str(a.verdict),
            a.outcome,
            None if a.delay is None else (f"{a.delay.seconds * 1000:.3f}", a.delay.source),
        )
        for a in course.attempts
    ]
    if course.answer is not None:
        code = course.answer.status
    else:
        code = 203 if course.falls_back else course.attempts[-1].status
    return [code, course.is_kept, *attempts]


def recorded(record: LogRecord) -> list[object]:
    """Read what was done from the access log."""
    attempts = [
        (
            str(a.get("why")),
            a["outcome"],
            (f"{a['wait_ms']:.3f}", a["wait_for"]) if "wait_ms" in a else None,
        )
        for a in record["attempts"]
    ]
    return [record["code"], "dead_letter" in record, *attempts]
