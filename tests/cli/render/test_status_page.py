"""What ``holdfast status`` makes of ``/status``: cells, tones, columns, order."""

from collections.abc import Callable
from typing import Any

import pytest

from proxy.cli.render.status_page import Order, status_page
from proxy.cli.render.tables import Page, Tone, lay_out, page_lines, text_of
from proxy.cli.untrusted_json import UntrustedJson

QUIET: dict[str, Any] = {"requests": {}, "errors": 0, "in_flight": 0, "upstreams": ["payments"]}
LATELY, TOTAL = "last minute", "total"


def of(routes: dict[str, Any] | None = None, /, **members: object) -> Page:
    return status_page(UntrustedJson({"routes": routes or {}, **members}))


def lately(**routes: dict[str, Any]) -> dict[str, Any]:
    """The part about the last minute."""
    return {"last_minute": {"seconds": 60.1, "routes": routes}}


def cells(shown: Page, title: str, group: str = "") -> dict[str, dict[str, tuple[str, Tone]]]:
    """A table by its rows' names and its headings, of one group if there are any."""
    found: dict[str, dict[str, tuple[str, Tone]]] = {}
    for table in shown.tables:
        columns = table.columns[1:]
        for name, *row in table.rows if table.title == title else ():
            found[name.text] = {
                column.heading: (cell.text, cell.tone)
                for column, cell in zip(columns, row, strict=True)
                if column.group in ("", group)
            }
    return found


def total(title: str, heading: str, /, **members: object) -> tuple[str, Tone]:
    """A cell of the totals of the only route, which has these members."""
    return cells(of({"charges": {**QUIET, **members}}), title, TOTAL)["charges"][heading]


def recent(title: str, heading: str, /, **members: object) -> tuple[str, Tone]:
    """A cell of the last minute of the only route, which had these members in it."""
    shown = of({"charges": {**QUIET, **members}}, **lately(charges=members))
    return cells(shown, title, LATELY)["charges"][heading]


def lines(**members: object) -> list[str]:
    return [text_of(line) for line in of(**members).lines]


def notes(**members: object) -> list[str]:
    return [text_of(line) for line in of(**members).notes]


CellOf = Callable[..., tuple[str, Tone]]
both = pytest.mark.parametrize("cell", [total, recent])


# Routes.


@both
@pytest.mark.parametrize(
    ("requests", "errors", "expected"),
    [
        ({}, 0, ("-", Tone.PLAIN)),
        ({"2xx": 10}, 0, ("0.0%", Tone.GOOD)),
        ({"2xx": 990, "5xx": 10}, 10, ("1.0%", Tone.WARNING)),
        ({"2xx": 95, "5xx": 5}, 5, ("5.0%", Tone.BAD)),
    ],
)
def test_error_rate(
    cell: CellOf, requests: dict[str, int], errors: int, expected: tuple[str, Tone]
) -> None:
    assert cell("Routes", "errors", requests=requests, errors=errors) == expected
    assert total("Routes", "requests", requests=requests)[0] == str(sum(requests.values()))


@both
def test_refusals_of_the_proxy_itself(cell: CellOf) -> None:
    stats = {"requests": {"2xx": 7, "4xx": 3}, "refused": {"throttled": 2, "key_missing": 1}}
    assert cell("Routes", "refused", **stats) == ("30.0%", Tone.WARNING)


def test_nothing_was_refused() -> None:
    stats = {"requests": {"2xx": 7}, "refused": {}}
    assert recent("Routes", "refused", **stats) == ("0.0%", Tone.GOOD)


@pytest.mark.parametrize(
    ("rate", "shown"), [(0.0, "0"), (0.017, "0.02"), (0.25, "0.2"), (12.34, "12.3"), (345.6, "346")]
)
def test_requests_per_second(rate: float, shown: str) -> None:
    assert recent("Routes", "req/s", requests_per_second=rate)[0] == shown


def test_latency_of_the_last_minute() -> None:
    assert recent("Routes", "p50/p95", duration_ms={"p50": 4.2, "p95": 1234.0})[0] == "4.2ms/1.2s"
    assert recent("Routes", "p50/p95", duration_ms=None)[0] == "-"


@pytest.mark.parametrize(
    ("seconds", "named"), [(60.4, "last minute"), (57.6, "last minute"), (12.3, "last 12 s")]
)
def test_a_young_process_does_not_claim_a_minute(seconds: float, named: str) -> None:
    page = of({"charges": QUIET}, last_minute={"seconds": seconds, "routes": {}})
    assert {column.group for column in page.tables[0].columns} == {"", named, TOTAL}


def test_a_route_without_requests_in_the_last_minute() -> None:
    shown = of({"charges": {**QUIET, "requests": {"2xx": 5}}}, **lately())
    row = cells(shown, "Routes", LATELY)["charges"]
    assert [text for text, _ in row.values()] == ["0", "-", "-", "-", "0"]


def test_what_is_new_since_the_last_look() -> None:
    earlier = {"charges": {**QUIET, "requests": {"2xx": 5}}, "search": QUIET}
    routes = {
        "charges": {**QUIET, "requests": {"2xx": 9, "5xx": 1}, "errors": 1},
        "search": QUIET,
        "new": {**QUIET, "requests": {"2xx": 1}, "dead_letters": {"kept": 2}},
    }
    page = status_page(UntrustedJson({"routes": routes}), before=UntrustedJson({"routes": earlier}))
    rows = cells(page, "Routes", TOTAL)
    assert (rows["charges"]["new"][0], rows["search"]["new"][0]) == ("+5", "")
    assert text_of(page.lines[-1]) == "since the last look: +6 requests, +1 error, +2 dead letters"
    again = status_page(UntrustedJson({"routes": routes}), before=UntrustedJson({"routes": routes}))
    assert text_of(again.lines[-1]) == "since the last look: nothing new"


# Retries.


@both
@pytest.mark.parametrize(
    ("retries", "recovered", "expected"),
    [
        (4, 0, ("0.0%", Tone.BAD)),
        (4, 1, ("25.0%", Tone.WARNING)),
        (4, 3, ("75.0%", Tone.GOOD)),
    ],
)
def test_how_many_retries_worked(
    cell: CellOf, retries: int, recovered: int, expected: tuple[str, Tone]
) -> None:
    stats = {"retries": retries, "recovered": recovered, "wait_ms": None}
    assert cell("Retries", "worked", **stats) == expected
    assert cell("Retries", "retries", **stats)[0] == str(retries)


@both
def test_waits(cell: CellOf) -> None:
    waits = {"p50": 85.2, "p95": 1234.0}
    assert cell("Retries", "waits p50/p95", retries=1, wait_ms=waits)[0] == "85ms/1.2s"
    assert cell("Retries", "waits p50/p95", retries=1, wait_ms=None)[0] == "-"


def test_why_failures_were_not_retried_and_how_often() -> None:
    verdicts = {"success": 90, "retried": 3, "recovered": 2, "not_repeatable": 5, "budget": 7}
    shown = of(
        {"charges": {**QUIET, "verdicts": verdicts}},
        **lately(charges={"verdicts": {"not_repeatable": 4, "retried": 1}}),
    )
    [table] = [table for table in shown.tables if table.title == "Not retried"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["charges", "budget", "-", "x7"],
        ["charges", "not_repeatable", "x4", "x5"],
    ]


@both
def test_duplicates_are_those_that_got_the_result_of_another(cell: CellOf) -> None:
    results = {"new": 5, "replayed": 2, "joined": 1, "mismatch": 2}
    assert cell("Idempotency keys", "duplicates", idempotency=results)[0] == "30.0%"
    assert cell("Idempotency keys", "with a key", idempotency=results)[0] == "10"
    assert cell("Idempotency keys", "refused", idempotency=results) == ("2", Tone.WARNING)


def test_what_no_route_has_takes_no_room() -> None:
    shown = of({"charges": {**QUIET}, "search": {**QUIET}})
    assert [table.title for table in shown.tables] == ["Routes"]
    assert notes(routes={"charges": QUIET})[-1] == ("not used: throttle, idempotency, dead_letter")
    upstreams: dict[str, object] = {"payments": {"throttle": {}}}
    assert notes(routes={"charges": QUIET}, upstreams=upstreams)[-1] == (
        "not used: idempotency, dead_letter"
    )
    used = {**QUIET, "throttle": {}, "idempotency": {}, "dead_letters": {}}
    assert notes(routes={"charges": used}, known_keys={})[-1] == "reloads: 0 good, 0 refused"


def test_where_held_keys_are_not_counted_it_says_who_knows_them() -> None:
    keyed = {"charges": {**QUIET, "idempotency": {}}}
    hint = "keys that are held in the store are not counted here: holdfast keys list"
    assert hint in notes(routes=keyed)
    assert hint not in notes(routes=keyed, known_keys={"count": 0})
    assert hint not in notes(routes={"charges": QUIET})


def test_of_very_many_routes_the_quiet_ones_leave_the_tables_below_in_reach() -> None:
    quiet = {**QUIET, "throttle": {"passed": 7}, "dead_letters": {}}
    routes = {f"route-{number:03}": quiet for number in range(200)}
    routes["route-150"] = {**quiet, "throttle": {"waiting": 1}, "dead_letters": {"waiting": 2}}
    passed = {"throttle": {"passed": 1}}
    tables = {table.title: table for table in of(routes, **lately(**{"route-160": passed})).tables}
    assert len(tables["Routes"].rows) == 200
    for title, first in (("Throttles", "route route-150"), ("Dead letters", "route-150")):
        assert tables[title].rows[0][0].text == first
        assert (len(tables[title].rows), tables[title].quiet) == (10, 190)
        assert text_of(lay_out(tables[title], 120)[0]).startswith(f"{title} (190 quiet ones left")
    assert tables["Throttles"].rows[1][0].text == "route route-160"
    busy = {f"route-{number:03}": routes["route-150"] for number in range(20)}
    assert {(len(table.rows), table.quiet) for table in of(busy).tables} == {(20, 0)}


def test_what_another_route_has_is_a_dash() -> None:
    lost = {"dead_letters": {"lost": 1}}
    shown = of({"charges": {**QUIET, **lost}, "search": {**QUIET, "dead_letters": {}}})
    assert cells(shown, "Dead letters", TOTAL)["search"]["lost"] == ("-", Tone.PLAIN)


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
    row = cells(of({"a": {**QUIET, "throttle": throttle}}), "Throttles", "now")["route a"]
    assert (row["queue"], row["paused"]) == (queue, paused)


def test_throttles_of_routes_and_upstreams() -> None:
    throttle = {"passed": 7, "delayed": 2, "refused": 1, "waiting": 0, "paused": 0}
    waits = {"wait_ms": {"p50": 10.0, "p95": 20.0}}
    shown = of(
        {"search": {**QUIET, "throttle": throttle}},
        upstreams={"search": {"throttle": {**throttle, "refused": 0}}},
        last_minute={
            "seconds": 60.0,
            "routes": {"search": {"throttle": {"passed": 3, "refused": 1}}},
            "upstreams": {"search": {"throttle": {"passed": 4, **waits}}},
        },
    )
    rows = cells(shown, "Throttles", TOTAL)
    assert rows.keys() == {"route search", "upstream search"}
    assert rows["route search"]["refused"] == ("1", Tone.WARNING)
    assert rows["upstream search"]["refused"] == ("0", Tone.PLAIN)
    rows = cells(shown, "Throttles", LATELY)
    assert rows["route search"]["passed"] == ("3", Tone.PLAIN)
    assert rows["upstream search"]["passed"] == ("4", Tone.PLAIN)
    assert rows["upstream search"]["waits p50/p95"] == ("10ms/20ms", Tone.PLAIN)


# Failures and dead letters.


def test_failures_by_category() -> None:
    failing = {"transient": {"503": 9, "reset": 3}, "permanent": {"404": 4}}
    shown = of(
        {
            "charges": {**QUIET, "failures": failing},
            "search": {**QUIET, "failures": {"transient": {}, "permanent": {}}},
        },
        **lately(charges={"failures": {"transient": {"503": 2}, "permanent": {}}}),
    )
    assert cells(shown, "Failed attempts", TOTAL) == {
        "charges": {
            "transient": ("12", Tone.WARNING),
            "permanent": ("4", Tone.BAD),
            "which": ("503 x9, 404 x4, reset x3", Tone.PLAIN),
        }
    }
    row = cells(shown, "Failed attempts", LATELY)["charges"]
    assert (row["transient"], row["permanent"]) == (("2", Tone.WARNING), ("0", Tone.GOOD))


def test_a_status_in_both_categories_counts_in_both() -> None:
    failing = {"transient": {"404": 1}, "permanent": {"404": 2}}
    assert total("Failed attempts", "which", failures=failing)[0] == "404 x3"


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
        {"charges": {**QUIET, "dead_letters": lost}, "orders": {**QUIET, "dead_letters": quiet}},
        **lately(charges={"dead_letters": {"kept": 3, "lost": 1}}),
    )
    rows = cells(shown, "Dead letters", TOTAL)
    assert rows["charges"]["lost"] == ("4", Tone.BAD)
    assert rows["charges"]["expired"] == ("2", Tone.BAD)
    assert rows["orders"]["lost"] == ("-", Tone.PLAIN)
    just_now = cells(shown, "Dead letters", LATELY)["charges"]
    assert (just_now["lost"], just_now["kept"]) == (("1", Tone.BAD), ("3", Tone.WARNING))
    shown = of({"orders": {**QUIET, "dead_letters": quiet}})
    assert "lost" not in cells(shown, "Dead letters", TOTAL)["orders"]


# Upstreams and workers.


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
            "mail": [],
        },
        upstreams={"payments": {"budget_remaining": 7.4}, "search": {"budget_remaining": 0.4}},
        last_minute={
            "seconds": 60.0,
            "upstreams": {
                "payments": {"attempts_per_second": 2.5, "duration_ms": {"p50": 1, "p95": 2}}
            },
        },
    )
    [table] = shown.tables
    assert [[piece.text for piece in row] for row in table.rows] == [
        ["payments", "10.0.0.7:443", "open", "2.5", "1.0ms/2.0ms", "3", "1", "7"],
        ["payments", "10.0.0.8:443", "closed", "", "", "2", "2", ""],
        ["search", "10.0.0.9:80", "failing", "0", "-", "0", "0", "0"],
        ["search", "10.0.0.9:81", "good", "", "", "0", "0", ""],
        ["mail", "none known before its first call", *"------"],
    ]
    tones = [row[2].tone for row in table.rows]
    assert tones == [Tone.BAD, Tone.GOOD, Tone.BAD, Tone.GOOD, Tone.PLAIN]
    assert [table.rows[at][-1].tone for at in (0, 2)] == [Tone.GOOD, Tone.BAD]


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


# The process.


def test_the_process() -> None:
    members = {
        "version": "1.2.3",
        "state": "ready",
        "uptime_seconds": 7390.2,
        "connections": 12,
        "routes": {"charges": {**QUIET, "in_flight": 2}, "search": {**QUIET, "in_flight": 1}},
        "reloads": {"success": 3, "failure": 1},
        "store": {"url": "memory"},
        "trouble": [],
        **lately(),
    }
    assert lines(**members) == [
        "holdfast 1.2.3: ready, up 2h 3m, 12 connections, 3 in flight",
        "store: memory of this process",
        "no trouble in the last minute",
    ]
    assert notes(**members)[0] == "reloads: 3 good, 1 refused"


@pytest.mark.parametrize(
    ("store", "line"),
    [
        ({}, "store: memory of this process"),
        (
            {"url": "sqlite:/var/lib/keys.db", "state": "up", "errors": {}},
            "store: up, sqlite:/var/lib/keys.db, 0 errors",
        ),
        (
            {"url": "redis://***@cache:6379/0", "state": "down", "errors": {"take": 3, "pause": 1}},
            "store: down, redis://***@cache:6379/0, 4 errors",
        ),
    ],
)
def test_the_store_by_name(store: dict[str, object], line: str) -> None:
    assert lines(store=store)[1] == line


def test_keys_and_lost_lines() -> None:
    said = notes(keys={"in_flight": 2, "waiting": 1}, access_log_dropped=5)
    assert said[1:3] == ["keys: 2 in flight, 1 waiting", "access log: 5 lines lost"]


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
    assert [line for line in notes(known_keys=keys) if line.startswith("known")] == said


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
    page = of(**members)
    found = {piece.tone for line in (*page.lines, *page.notes) for piece in line}
    assert tone in found


# Trouble first.


def trouble(
    level: str, about: str, name: str, reason: str, text: str = "It broke."
) -> dict[str, str]:
    return {"level": level, "about": about, "name": name, "reason": reason, "text": text}


def test_trouble_stands_above_all_tables_with_its_sentence() -> None:
    page = of(
        {"a": QUIET, "charges": QUIET},
        trouble=[
            trouble("bad", "store", "", "down", "redis://h does not answer"),
            trouble("warning", "route", "charges", "refused", "3 of 9 requests were refused"),
        ],
    )
    assert page.tables[0].title == "Trouble"
    assert [[cell.text for cell in row] for row in page.tables[0].rows] == [
        ["!!", "store", "redis://h does not answer"],
        ["!", "route charges", "3 of 9 requests were refused"],
    ]
    assert [row[0].tone for row in page.tables[0].rows] == [Tone.BAD, Tone.WARNING]
    assert "no trouble in the" not in " ".join(text_of(line) for line in page.lines)


def test_routes_and_tables_in_trouble_come_first() -> None:
    letters = {"dead_letters": {"waiting": 1}, "throttle": {"passed": 1}}
    routes = {name: {**QUIET, **letters} for name in ("a", "b", "c")}
    found = [
        trouble("warning", "route", "b", "letters_waiting"),
        trouble("bad", "route", "c", "errors"),
    ]
    page = of(routes, trouble=found)
    assert list(cells(page, "Routes")) == ["c", "b", "a"]
    titles = [table.title for table in page.tables]
    assert titles == ["Trouble", "Routes", "Dead letters", "Throttles"]
    found = [
        trouble("bad", "route", "a", "paused"),
        trouble("warning", "route", "a", "letters_lost"),
    ]
    titles = [table.title for table in of(routes, trouble=found).tables]
    assert titles == ["Trouble", "Routes", "Throttles", "Dead letters"]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        (Order.NAME, ["busy", "calm", "slow"]),
        (Order.RATE, ["busy", "slow", "calm"]),
        (Order.ERRORS, ["slow", "busy", "calm"]),
        (Order.REFUSED, ["calm", "busy", "slow"]),
        (Order.LATENCY, ["slow", "calm", "busy"]),
        (Order.TROUBLE, ["slow", "busy", "calm"]),
    ],
)
def test_routes_are_sorted_by_the_last_minute(order: Order, names: list[str]) -> None:
    recently = {
        "busy": {"requests_per_second": 9.0, "requests": {"2xx": 9, "5xx": 1}, "errors": 1},
        "slow": {
            "requests_per_second": 2.0,
            "requests": {"5xx": 2},
            "errors": 2,
            "duration_ms": {"p50": 1, "p95": 900},
        },
        "calm": {
            "requests_per_second": 1.0,
            "requests": {"2xx": 2},
            "refused": {"throttled": 1},
            "duration_ms": {"p50": 1, "p95": 20},
        },
    }
    status = {
        "routes": dict.fromkeys(("busy", "slow", "calm"), QUIET),
        "trouble": [trouble("bad", "route", "slow", "errors")],
        **lately(**recently),
    }
    assert list(cells(status_page(UntrustedJson(status), order=order), "Routes")) == names


def test_only_some_routes_with_their_upstreams_and_their_trouble() -> None:
    status = {
        "routes": {"a": QUIET, "b": {**QUIET, "upstreams": ["search"]}},
        "addresses": {"payments": [{"address": "p:1"}], "search": [{"address": "s:1"}]},
        "trouble": [trouble("bad", "route", "a", "errors"), trouble("bad", "route", "b", "errors")],
    }
    page = status_page(UntrustedJson(status), only=["b"])
    assert list(cells(page, "Routes")) == ["b"]
    assert list(cells(page, "Upstreams")) == ["search"]
    assert [row[1].text for row in page.tables[0].rows] == ["route b"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_everything_at_once_fits_the_terminal(width: int) -> None:
    long = "orders-of-the-second-generation-for-the-whole-of-europe-v2"
    quantiles = {"p50": 1234.0, "p95": 98765.0}
    counted = {
        "requests": {"2xx": 99999, "5xx": 12345},
        "errors": 12345,
        "refused": {"throttled": 99999},
        "duration_ms": quantiles,
        "retries": 99999,
        "recovered": 1,
        "wait_ms": quantiles,
        "verdicts": {"not_retryable_status": 99999},
        "failures": {"transient": {"503": 99999, "connect": 3}, "permanent": {"404": 4}},
        "throttle": {"passed": 99999, "delayed": 99999, "refused": 99999, "wait_ms": quantiles},
        "idempotency": {"new": 99999, "replayed": 2, "mismatch": 4},
        "dead_letters": {"waiting": 3, "replayable": 2, "lost": 4, "expired": 2, "kept": 3},
    }
    status = {
        "routes": {long: {**QUIET, **counted, "upstreams": [long]}},
        "upstreams": {long: counted},
        "addresses": {
            long: [{"address": "[2001:db8::1234:5678:9abc]:44300", "breaker": "half_open"}]
        },
        "trouble": [trouble("bad", "route", long, "errors", "9 of 10 requests failed: " * 5)],
        "last_minute": {
            "seconds": 60.0,
            "routes": {long: {**counted, "requests_per_second": 1234.5}},
            "upstreams": {long: {**counted, "attempts_per_second": 1234.5}},
        },
    }
    page = status_page(UntrustedJson(status), before=UntrustedJson({}))
    shown = [text_of(line) for line in page_lines(page, width, wraps=True)]
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    assert " ".join(text.split()).count("requests failed:") >= 1
    for heading in ("req/s", "errors", "refused", "p50/p95", "not_retryable_status", "waiting"):
        assert heading in text


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
        {
            evil: {
                **QUIET,
                "failures": {"transient": {evil: 1}},
                "verdicts": {evil: 1},
                "throttle": {"passed": 1},
                "dead_letters": {},
            }
        },
        version=evil,
        state=evil,
        addresses={evil: [{"address": evil, "breaker": evil}]},
        upstreams={evil: {}},
        store={"state": evil, "url": evil},
        trouble=[trouble(evil, evil, evil, evil, evil)],
        workers=[{"state": evil}],
    )
    assert len(shown.tables) == 8
    texts = [piece.text for line in (*shown.lines, *shown.notes) for piece in line]
    texts += [piece.text for table in shown.tables for row in table.rows for piece in row]
    assert all(" " <= dead_letter <= "~" for text in texts for dead_letter in text)
