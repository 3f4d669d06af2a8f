"""What ``holdfast status`` makes of ``/status``: cells, tones and columns."""

from typing import Any

import pytest

from proxy.cli.render.status_page import status_page
from proxy.cli.render.tables import Page, Tone
from proxy.cli.untrusted_json import UntrustedJson

QUIET: dict[str, Any] = {"requests": {}, "errors": 0, "in_flight": 0, "upstreams": ["payments"]}


def of(routes: dict[str, Any] | None = None, /, **members: object) -> Page:
    return status_page(UntrustedJson({"routes": routes or {}, **members}))


def cells(shown: Page, title: str) -> dict[str, dict[str, tuple[str, Tone]]]:
    """A table by its rows' names and its headings."""
    found: dict[str, dict[str, tuple[str, Tone]]] = {}
    for table in shown.tables:
        headings = [column.heading for column in table.columns[1:]]
        for name, *row in table.rows if table.title == title else ():
            pairs = zip(headings, row, strict=True)
            found[name.text] = {heading: (cell.text, cell.tone) for heading, cell in pairs}
    return found


def cell(title: str, heading: str, /, **members: object) -> tuple[str, Tone]:
    """A cell of the only route, which has these members."""
    return cells(of({"charges": {**QUIET, **members}}), title)["charges"][heading]


def lines(**members: object) -> list[str]:
    return ["".join(piece.text for piece in line) for line in of(**members).lines]


@pytest.mark.parametrize(
    ("requests", "errors", "expected"),
    [
        ({}, 0, ("-", Tone.PLAIN)),
        ({"2xx": 10}, 0, ("0.0%", Tone.GOOD)),
        ({"2xx": 990, "5xx": 10}, 10, ("1.0%", Tone.WARNING)),
        ({"2xx": 95, "5xx": 5}, 5, ("5.0%", Tone.BAD)),
    ],
)
def test_error_rate(requests: dict[str, int], errors: int, expected: tuple[str, Tone]) -> None:
    assert cell("Routes", "errors", requests=requests, errors=errors) == expected
    assert cell("Routes", "requests", requests=requests)[0] == str(sum(requests.values()))


@pytest.mark.parametrize(
    ("retries", "recovered", "expected"),
    [
        (0, 0, ("-", Tone.PLAIN)),
        (4, 0, ("0.0%", Tone.BAD)),
        (4, 1, ("25.0%", Tone.WARNING)),
        (4, 3, ("75.0%", Tone.GOOD)),
    ],
)
def test_how_many_retries_worked(retries: int, recovered: int, expected: tuple[str, Tone]) -> None:
    stats = {"retries": retries, "recovered": recovered, "wait_ms": None}
    assert cell("Routes", "worked", **stats) == expected
    assert cell("Routes", "retries", **stats)[0] == str(retries)


def test_waits() -> None:
    waits = {"p50": 85.2, "p95": 1234.0}
    assert cell("Routes", "waits p50/p95", retries=1, wait_ms=waits)[0] == "85ms/1.2s"
    assert cell("Routes", "waits p50/p95", retries=0, wait_ms=None)[0] == "-"


def test_duplicates_are_those_that_got_the_result_of_another() -> None:
    results = {"new": 5, "replayed": 2, "joined": 1, "mismatch": 2}
    assert cell("Routes", "duplicates", idempotency=results)[0] == "30.0%"
    assert cell("Routes", "duplicates", idempotency={"new": 0})[0] == "-"


def test_what_no_route_has_takes_no_room() -> None:
    shown = of({"charges": {**QUIET}, "search": {**QUIET}})
    assert cells(shown, "Routes")["search"].keys() == {"requests", "errors"}
    assert cells(shown, "Now")["search"].keys() == {"in flight"}
    assert [table.title for table in shown.tables] == ["Routes", "Now"]


def test_what_another_route_has_is_a_dash() -> None:
    shown = of({"charges": {**QUIET, "retries": 3, "recovered": 3}, "search": QUIET})
    assert cells(shown, "Routes")["search"]["retries"] == ("-", Tone.PLAIN)


@pytest.mark.parametrize(
    ("throttle", "queue", "paused"),
    [
        ({"waiting": 0, "paused": 0}, ("0", Tone.PLAIN), ("no", Tone.PLAIN)),
        (
            {"waiting": 3, "paused": 1, "paused_for_seconds": 2.04},
            ("3", Tone.WARNING),
            ("for 2.0s", Tone.WARNING),
        ),
    ],
)
def test_the_line_before_a_throttle(
    throttle: dict[str, object], queue: tuple[str, Tone], paused: tuple[str, Tone]
) -> None:
    assert cell("Now", "queue", throttle=throttle) == queue
    assert cell("Now", "paused", throttle=throttle) == paused


def test_throttles_of_routes_and_upstreams() -> None:
    throttle = {"passed": 7, "delayed": 2, "refused": 1, "waiting": 0, "paused": 0}
    waits = {"wait_ms": {"p50": 10.0, "p95": 20.0}}
    shown = of(
        {"search": {**QUIET, "throttle": throttle}},
        upstreams={"search": {"throttle": {**throttle, **waits, "refused": 0}}},
    )
    rows = cells(shown, "Throttles")
    assert rows.keys() == {"route search", "upstream search"}
    assert rows["route search"]["refused"] == ("1", Tone.WARNING)
    assert rows["upstream search"]["refused"] == ("0", Tone.PLAIN)
    assert rows["upstream search"]["waits p50/p95"] == ("10ms/20ms", Tone.PLAIN)


@pytest.mark.parametrize(
    ("breaker", "budget", "expected"),
    [
        ("closed", 7.4, (("closed", Tone.GOOD), ("7", Tone.GOOD))),
        ("half_open", 1.0, (("half-open", Tone.WARNING), ("1", Tone.GOOD))),
        ("open", 0.4, (("open", Tone.BAD), ("0", Tone.BAD))),
    ],
)
def test_a_route_shows_the_breaker_and_the_budget_of_its_own_upstream(
    breaker: str, budget: float, expected: tuple[tuple[str, Tone], ...]
) -> None:
    shown = of(
        {"charges": {**QUIET, "upstreams": ["payments", "other"], "retries": 0}},
        upstreams={
            "payments": {"breaker": breaker, "budget_remaining": budget},
            "other": {"breaker": "closed", "budget_remaining": 99},
        },
    )
    row = cells(shown, "Now")["charges"]
    assert (row["breaker"], row["budget"]) == expected


def test_failures_by_category() -> None:
    failing = {"transient": {"503": 9, "reset": 3}, "permanent": {"404": 4}}
    shown = of(
        {
            "charges": {**QUIET, "failures": failing},
            "search": {**QUIET, "failures": {"transient": {}, "permanent": {}}},
        }
    )
    assert cells(shown, "Failed attempts") == {
        "charges": {
            "transient": ("12", Tone.WARNING),
            "permanent": ("4", Tone.BAD),
            "which": ("503 x9, 404 x4, reset x3", Tone.PLAIN),
        }
    }


def test_a_status_in_both_categories_counts_in_both() -> None:
    failing = {"transient": {"404": 1}, "permanent": {"404": 2}}
    assert cell("Failed attempts", "which", failures=failing)[0] == "404 x3"


def test_dead_letters_where_a_route_keeps_them() -> None:
    shown = of(
        {
            "charges": {**QUIET, "dead_letters": {"waiting": 3, "replayable": 2}},
            "orders": {**QUIET, "dead_letters": {"waiting": 0, "replayable": 0}},
            "search": QUIET,
        }
    )
    assert cells(shown, "Dead letters") == {
        "charges": {"waiting": ("3", Tone.BAD), "can be replayed": ("2", Tone.WARNING)},
        "orders": {"waiting": ("0", Tone.GOOD), "can be replayed": ("0", Tone.GOOD)},
    }


def test_letters_that_could_not_be_kept_are_in_red() -> None:
    lost = {"waiting": 1, "replayable": 1, "lost": 4, "expired": 2}
    quiet = {"waiting": 0, "replayable": 0, "lost": 0, "expired": 0}
    shown = of(
        {"charges": {**QUIET, "dead_letters": lost}, "orders": {**QUIET, "dead_letters": quiet}}
    )
    rows = cells(shown, "Dead letters")
    assert rows["charges"]["lost"] == ("4", Tone.BAD)
    assert rows["charges"]["expired"] == ("2", Tone.BAD)
    assert rows["orders"]["lost"] == ("-", Tone.PLAIN)
    shown = of({"orders": {**QUIET, "dead_letters": quiet}})
    assert "lost" not in cells(shown, "Dead letters")["orders"]


def test_addresses() -> None:
    shown = of(
        addresses={
            "payments": [
                {"address": "10.0.0.7:443", "open": 3, "idle": 1, "breaker": "open"},
                {"address": "10.0.0.8:443", "open": 2, "idle": 2, "breaker": "closed"},
            ],
            "search": [
                {"address": "10.0.0.9:80", "open": 0, "idle": 0, "failing": True},
                {"address": "10.0.0.9:81", "open": 0, "idle": 0, "failing": False},
            ],
        }
    )
    [table] = shown.tables
    assert [[piece.text for piece in row] for row in table.rows] == [
        ["payments", "10.0.0.7:443", "open", "3", "1"],
        ["payments", "10.0.0.8:443", "closed", "2", "2"],
        ["search", "10.0.0.9:80", "failing", "0", "0"],
        ["search", "10.0.0.9:81", "good", "0", "0"],
    ]
    tones = [row[2].tone for row in table.rows]
    assert tones == [Tone.BAD, Tone.GOOD, Tone.BAD, Tone.GOOD]


def test_requests_that_no_route_took_are_shown_if_there_are_any() -> None:
    none, some = ({"_unmatched": {**QUIET, "requests": codes}} for codes in ({}, {"4xx": 1}))
    assert not cells(of(none), "Routes")
    assert cells(of(some), "Routes").keys() == {"_unmatched"}


def test_workers_where_there_are_several() -> None:
    one = {"number": 0, "pid": 17, "state": "ready", "uptime_seconds": 7390.2, "connections": 12}
    status = {"workers": [one, {**one, "number": 1, "state": "silent"}], "worker_restarts": 1}
    assert "workers: 2, 1 restart" in lines(**status)
    found = cells(of(**status), "Workers")
    assert found["0"] == {
        "process": ("17", Tone.PLAIN),
        "state": ("ready", Tone.GOOD),
        "up": ("2h 3m", Tone.PLAIN),
        "connections": ("12", Tone.PLAIN),
    }
    assert found["1"]["state"] == ("silent", Tone.BAD)
    alone = of()
    assert not [table for table in alone.tables if table.title == "Workers"]
    assert not [line for line in lines() if line.startswith("workers")]


def test_the_process() -> None:
    assert lines(
        version="1.2.3",
        state="ready",
        uptime_seconds=7390.2,
        connections=12,
        reloads={"success": 3, "failure": 1},
    ) == [
        "holdfast 1.2.3: ready, up 2h 3m, 12 connections",
        "reloads: 3 good, 1 refused",
        "store: memory of this process",
    ]


def test_the_store_keys_and_lost_lines() -> None:
    said = lines(
        store={"state": "down", "errors": {"take": 3, "pause": 1}},
        keys={"in_flight": 2, "waiting": 1},
        access_log_dropped=5,
    )
    assert said[2:] == [
        "store: down, 4 errors",
        "keys: 2 in flight, 1 waiting",
        "access log: 5 lines lost",
    ]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"count": 0, "held": 0, "oldest_seconds": None}, []),
        (
            {"count": 7, "held": 0, "oldest_seconds": 7384.2},
            ["known keys: 7, the oldest of 2h 3m ago, 0 held"],
        ),
        ({"count": 3, "held": 2, "oldest_seconds": None}, ["known keys: 3, 2 held"]),
    ],
)
def test_keys_that_this_process_knows(keys: dict[str, object], said: list[str]) -> None:
    assert lines(known_keys=keys)[3:] == said


@pytest.mark.parametrize(
    ("members", "tone"),
    [
        ({"state": "ready"}, Tone.GOOD),
        ({"state": "draining"}, Tone.WARNING),
        ({"reloads": {"failure": 1}}, Tone.WARNING),
        ({"store": {"state": "up"}}, Tone.GOOD),
        ({"store": {"state": "down"}}, Tone.BAD),
        ({"store": {"state": "up", "errors": {"take": 1}}}, Tone.WARNING),
        ({"known_keys": {"count": 2, "held": 1}}, Tone.WARNING),
    ],
)
def test_tones_of_the_process(members: dict[str, object], tone: Tone) -> None:
    found = {piece.tone for line in of(**members).lines for piece in line}
    assert tone in found


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"routes": []}, id="no routes"),
        pytest.param({"routes": {"a": None, "b": [], "c": 3}}, id="routes that are none"),
        pytest.param(
            {
                "routes": {"a": {"requests": {"2xx": "many"}, "failures": 3, "upstreams": "b"}},
                "addresses": {"b": "c", "d": [None, 3]},
                "upstreams": {"b": {"budget_remaining": float("nan")}},
            },
            id="other types",
        ),
    ],
)
def test_an_answer_of_another_version(odd: dict[str, object]) -> None:
    status_page(UntrustedJson(odd))


def test_a_terminal_gets_no_orders_from_names() -> None:
    evil = "\x1b[2J\u202e"
    shown = of(
        {evil: {**QUIET, "failures": {"transient": {evil: 1}}}},
        version=evil,
        state=evil,
        addresses={evil: [{"address": evil, "breaker": evil}]},
    )
    texts = [piece.text for line in shown.lines for piece in line]
    texts += [piece.text for table in shown.tables for row in table.rows for piece in row]
    assert all(" " <= dead_letter <= "~" for text in texts for dead_letter in text)
