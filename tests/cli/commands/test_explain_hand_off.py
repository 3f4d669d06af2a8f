"""``holdfast explain`` of a route that hands off, with and without ``--hand-off``."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proxy.cli import main

FILE = """\
state_dir: ./state
upstreams:
  api: {urls: [http://127.0.0.1:1, http://127.0.0.1:2], honours_key: {for: 10d}}
  plain: {urls: [http://127.0.0.1:3]}
defaults:
  dead_letter: true
routes:
  - match: /bookmarks/**
    name: bookmarks
    upstream: api
    timeout: 10s
    retry: {attempts: 1, on: [connect, timeout, 5xx]}
    idempotency: {required: true, ttl: 4d}
    hand_off:
      when: [asked, failed]
      attempts: 4
      retry: {backoff: {base: 2m, factor: 2, max: 12h, jitter: 0.5}}
  - match: /plain/**
    name: plain
    upstream: plain
    hand_off: {max_body: 1KiB}
  - match: /all/**
    name: all
    upstream: plain
    hand_off: {when: always, methods: [PUT], retry: {backoff: [1s]}}
  - match: /none/**
    name: none
    upstream: plain
"""
ASKS = ("-H", "Prefer: respond-async")
KEY = ("-H", "Idempotency-Key: k")


def explained(folder: Path, *arguments: str) -> str:
    file = folder / "holdfast.yaml"
    file.write_text(FILE)
    result = CliRunner().invoke(main, ["explain", "-c", str(file), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(folder: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(explained(folder, *arguments, "--json"))
    return found


@pytest.mark.parametrize(
    ("arguments", "when", "why_not", "text"),
    [
        (
            ("POST", "/bookmarks/1", *KEY),
            None,
            "not_asked",
            (
                "It is handed off if its attempts fail and another one does no harm, or if the "
                "client asks (Prefer: respond-async); else it is served as ever."
            ),
        ),
        (
            ("POST", "/bookmarks/1", *KEY, *ASKS),
            "asked",
            None,
            "It is handed off (the client asks for it): it gets 202 once it is on disk.",
        ),
        (
            ("POST", "/bookmarks/1", *KEY, "-H", "Prefer: respond-async, wait=60"),
            "asked",
            None,
            (
                "It is handed off (the client asks for it): it gets 202 once it is on disk, or the "
                "upstream's answer if that comes within 10s."
            ),
        ),
        (
            ("GET", "/bookmarks/1", *ASKS),
            None,
            "method",
            "It is not handed off: hand_off.methods has DELETE, PATCH, POST, PUT.",
        ),
        (
            ("POST", "/plain/1"),
            None,
            "not_asked",
            "It is not handed off: the client does not ask for it (Prefer: respond-async).",
        ),
        (
            ("POST", "/plain/1", *ASKS, "-H", "Authorization: Bearer x"),
            None,
            "credentials",
            (
                "It is not handed off, because Authorization would have to be stored: it is served "
                "as ever. Let headers.request set or remove that, or write credentials: store (or "
                "drop)."
            ),
        ),
        (
            ("POST", "/plain/1", *ASKS, "-H", "Content-Length: 2000"),
            None,
            "too_large",
            (
                "It is not handed off, because its body is too large: it is served as ever "
                "(max_body 1KiB)."
            ),
        ),
        (
            ("PUT", "/all/1", "-H", "Content-Length: 2000000"),
            None,
            "too_large",
            (
                "It is not handed off, because its body is too large: it gets 413 body_too_large "
                "(max_body 1MiB)."
            ),
        ),
        (
            ("PUT", "/all/1"),
            "always",
            None,
            "It is handed off (hand_off: always): it gets 202 once it is on disk.",
        ),
    ],
)
def test_whether_it_is_handed_off(
    tmp_path: Path, arguments: tuple[str, ...], when: str | None, why_not: str | None, text: str
) -> None:
    found = as_json(tmp_path, *arguments)["hand_off"]
    assert (found["when"], found["why_not"], found["text"]) == (when, why_not, text)
    assert "schedule" not in found
    assert text in " ".join(explained(tmp_path, *arguments).split())


def test_a_route_that_does_not(tmp_path: Path) -> None:
    assert "hand_off" not in as_json(tmp_path, "POST", "/none/1", *ASKS)
    assert as_json(tmp_path, "POST", "/none/1", *ASKS, "--hand-off")["hand_off"] is None
    text = explained(tmp_path, "POST", "/none/1", *ASKS, "--hand-off")
    assert "The route none does not hand off: write hand_off: true in it.\n" in text


def test_the_schedule(tmp_path: Path) -> None:
    text = explained(tmp_path, "POST", "/bookmarks/1", *KEY, *ASKS, "--hand-off")
    table = text[text.index("If every try") :].split("\n\n")[0]
    assert (
        table
        == """\
If every try fails and nothing defers it, since its acceptance:
  try  earliest   latest
    1        0s       0s
    2        1m   3m 10s
    3        3m   9m 20s
    4        7m  21m 30s
It is given up 3d after its acceptance, whatever it waits for.
It is repeatable by its key (Idempotency-Key), at the same URL, for 9d23h59m50s
after its first try that may have run.
A crash before or between tries changes nothing: it is on disk. A crash while it
is being sent: it is sent again, the same bytes."""
    )
    found = as_json(tmp_path, "POST", "/bookmarks/1", *KEY, *ASKS, "--hand-off")["hand_off"]
    assert found["schedule"][1] == {"n": 2, "earliest": 60.0, "latest": 190.0}
    assert (found["give_up_after"], found["schedule_is_cut"]) == (259_200, False)
    assert (found["repeatable"], found["only_same_url"]) == (True, True)
    assert found["repeatable_for"] == 10 * 86_400 - 10


def test_a_schedule_with_very_many_tries_is_cut(tmp_path: Path) -> None:
    text = explained(tmp_path, "PUT", "/all/1", "--hand-off")
    assert "  100" in text
    assert "  101" not in text
    assert "  ... and more\n" in text
    assert "It is repeatable: it may run twice" in text


def test_what_is_not_repeatable(tmp_path: Path) -> None:
    text = " ".join(explained(tmp_path, "POST", "/plain/1", *ASKS, "--hand-off").split())
    assert "It is not repeatable: after a try that may have run it is not sent again." in text
    assert (
        "A crash while it is being sent: it fails as uncertain, as a dead letter that says that it "
        "may have run."
    ) in text


def test_a_key_that_is_added(tmp_path: Path) -> None:
    """Only if nothing was sent before: not where the route's own attempts come first."""
    url = ("POST", "/added/1", "--hand-off")
    file = FILE + "  - {match: /added/**, name: added, upstream: api, hand_off: true}\n"
    (tmp_path / "more.yaml").write_text(file)
    run = CliRunner().invoke
    for fields, adds in ((ASKS, True), ((), False), ((*ASKS, *KEY), False)):
        arguments = ["explain", "-c", str(tmp_path / "more.yaml"), *url, *fields, "--json"]
        found = json.loads(run(main, arguments).stdout)["hand_off"]
        assert (found["adds_key"], found["repeatable"]) == (adds, bool(fields))


@pytest.mark.parametrize("fields", [ASKS, ()])
def test_what_follows(tmp_path: Path, fields: tuple[str, ...]) -> None:
    """The stages themselves say so: asked before anything is sent, else after its attempts."""
    arguments = ("POST", "/bookmarks/1", *KEY, *fields, "--outcome", "503")
    text = explained(tmp_path, *arguments)
    found = as_json(tmp_path, *arguments)
    assert [ending["handed_off"] for ending in found["endings"]] == [True]
    assert found["endings"][0]["remedies"] == []
    assert "The client gets 202 at once, and the request is delivered later." in text
    assert "Its key: duplicates get the same 202 until the delivery has ended" in text
    assert len(found["attempts"]) == (0 if fields else 1)


def test_a_failure_that_is_not_handed_off(tmp_path: Path) -> None:
    found = as_json(tmp_path, "POST", "/bookmarks/1", *KEY, "--outcome", "400")
    assert [ending["handed_off"] for ending in found["endings"]] == [False]
    assert "the upstream's 400" in found["endings"][0]["text"]
