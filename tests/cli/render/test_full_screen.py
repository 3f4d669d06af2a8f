"""The part of a page that is in view: pure arithmetic."""

import os
import time

import pytest

from proxy.cli.keyboard import KeyPress
from proxy.cli.render.full_screen import View, clip, frame
from proxy.cli.render.status_page import status_page
from proxy.cli.render.tables import Cell, Line, Tone, page_lines, text_of
from proxy.cli.untrusted_json import UntrustedJson

HINTS = ("q: quit", "s: sorted by trouble", "arrows: scroll")
TOP = (Cell("12:00:00 UTC"),)


@pytest.mark.parametrize(
    ("keys", "first"),
    [
        ([], 0),
        ([KeyPress.UP], 0),
        ([KeyPress.DOWN, KeyPress.DOWN, KeyPress.UP], 1),
        ([KeyPress.PAGE_DOWN], 9),
        ([KeyPress.PAGE_DOWN, KeyPress.PAGE_UP], 0),
        ([KeyPress.PAGE_DOWN] * 9, 20),
        ([KeyPress.END], 20),
        ([KeyPress.END, KeyPress.UP], 19),
        ([KeyPress.END, KeyPress.HOME], 0),
        ([KeyPress.SORT], 0),
    ],
)
def test_scrolling_stays_within_thirty_lines_of_which_ten_are_in_view(
    keys: list[KeyPress], first: int
) -> None:
    view = View()
    for key in keys:
        view.move(key, 30, 10)
    assert view.first == first


@pytest.mark.parametrize(
    ("first", "lines", "said"),
    [
        (0, 8, "all rows shown"),
        (0, 10, "all rows shown"),
        (0, 11, "1 more row: scroll"),
        (0, 22, "12 more rows: scroll"),
        (1, 22, "1 row above, 11 more below"),
        (12, 22, "12 rows above"),
    ],
)
def test_what_is_not_in_view_is_announced(first: int, lines: int, said: str) -> None:
    view = View()
    view.first = first
    assert view.describe(lines, 10) == said


def body(count: int) -> list[Line]:
    return [(Cell(f"line {number} " + "x" * 90, Tone.GOOD),) for number in range(count)]


@pytest.mark.parametrize("columns", [1, 20, 60, 80, 120])
@pytest.mark.parametrize("rows", [1, 3, 24, 50])
def test_a_frame_fills_the_screen_exactly(columns: int, rows: int) -> None:
    shown = frame(TOP, body(40), HINTS, View(), os.terminal_size((columns, rows)))
    assert len(shown) == rows
    assert max(len(text_of(line)) for line in shown) <= max(columns, len("  12:00:00"))


def test_hints_are_shown_as_far_as_they_fit() -> None:
    def foot(columns: int) -> str:
        return text_of(frame(TOP, body(40), HINTS, View(), os.terminal_size((columns, 24)))[-1])

    assert foot(80) == "18 more rows: scroll | q: quit | s: sorted by trouble | arrows: scroll"
    assert foot(60) == "18 more rows: scroll | q: quit | s: sorted by trouble"
    assert foot(32) == "18 more rows: scroll | q: quit"
    assert foot(20) == "18 more rows: scroll"


def test_fewer_lines_than_before_are_still_in_view() -> None:
    view, size = View(), os.terminal_size((80, 12))
    view.move(KeyPress.END, 100, 10)
    shown = frame(TOP, body(12), HINTS, view, size)
    assert text_of(shown[1]).startswith("line 2 ")


def test_clipping_keeps_tones() -> None:
    line = (Cell("abc", Tone.BAD), Cell("defg"), Cell("hi"))
    assert clip(line, 5) == (Cell("abc", Tone.BAD), Cell("de"))


def test_two_hundred_routes_are_drawn_quickly() -> None:
    counted = {
        "requests": {"2xx": 990, "5xx": 10},
        "errors": 10,
        "refused": {"throttled": 3},
        "duration_ms": {"p50": 1.0, "p95": 2.0},
        "retries": 5,
        "recovered": 3,
        "verdicts": {"success": 900, "not_repeatable": 5, "budget": 2},
        "failures": {"transient": {"503": 12}, "permanent": {"404": 3}},
        "throttle": {"passed": 9, "delayed": 1, "refused": 3},
        "idempotency": {"new": 5, "replayed": 3},
        "dead_letters": {"waiting": 1},
    }
    routes = {f"route-{number}": {**counted, "upstreams": ["u"]} for number in range(200)}
    content = UntrustedJson({"routes": routes, "last_minute": {"seconds": 60, "routes": routes}})
    taken = []
    for _ in range(3):
        began = time.process_time()
        lines = page_lines(status_page(content, before=content), 80, wraps=True)
        shown = frame(TOP, lines, HINTS, View(), os.terminal_size((80, 24)))
        taken.append(time.process_time() - began)
    assert len(lines) > 1400
    assert len(shown) == 24
    assert min(taken) < 0.25, "of each second"
