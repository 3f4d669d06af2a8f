from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from proxy.cli.render.tables import (
    Cell,
    Column,
    Page,
    Table,
    Tone,
    cut,
    lay_out,
    page_lines,
    text_of,
    wrap_line,
)
from proxy.cli.untrusted_json import legible

COLUMNS = (Column("route", is_text=True), Column("requests"), Column("which", is_text=True))


def table(*rows: tuple[str, str, str]) -> Table:
    return Table("Routes", COLUMNS, [[Cell(text) for text in row] for row in rows])


def plain(shown: Table, max_width: int) -> list[str]:
    return [text_of(line) for line in lay_out(shown, max_width)]


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("charges", 7, "charges"),
        ("charges", 20, "charges"),
        ("v1-orders-write", 12, "v1-or..write"),
        ("v1-orders-write", 9, "v1-o..ite"),
        ("charges", 3, "c.."),
        ("charges", 2, "ch"),
        ("charges", 0, ""),
    ],
)
def test_a_long_text_gives_way_in_the_middle(text: str, width: int, expected: str) -> None:
    assert cut(text, width) == expected


@settings(deadline=None)  # the machine may be busy
@given(st.text(max_size=40), st.integers(0, 40))
def test_nothing_is_longer_than_its_room(text: str, width: int) -> None:
    assert len(cut(text, width)) == min(len(text), width)


def test_text_stands_to_the_left_and_numbers_to_the_right() -> None:
    assert plain(table(("charges", "12345", "503 x3"), ("all", "1", "-")), 80) == [
        "Routes",
        "route    requests  which",
        "charges     12345  503 x3",
        "all             1  -",
    ]


def test_the_widest_text_gives_way_and_numbers_never_do() -> None:
    long = "orders-of-the-second-generation-for-the-whole-of-europe-and-the-rest-v2"
    lines = plain(table((long, "123456", "503 x3, timeout x2")), 50)
    assert max(map(len, lines)) == 50
    assert "123456" in lines[2]
    assert lines[2].startswith("orders")


@settings(deadline=None)  # the machine may be busy
@given(
    st.lists(st.tuples(st.text("ab", max_size=90), st.just("123"), st.text("c", max_size=90))),
    st.integers(40, 120),
)
def test_no_line_is_too_wide(rows: list[tuple[str, str, str]], max_width: int) -> None:
    assert max(map(len, plain(table(*rows), max_width))) <= max_width


def test_where_there_is_no_room_at_all_names_keep_eight_characters() -> None:
    lines = plain(table(("a-name-that-is-long", "123456", "503 x30000")), 10)
    assert lines[2].startswith("a-n..ong  ")


def test_what_is_to_be_copied_is_never_cut() -> None:
    columns = (Column("id", is_text=True, is_whole=True), Column("route", is_text=True))
    row = (Cell("18f3a2b4c5d0a1b2c3d4"), Cell("orders-of-the-second-generation"))
    lines = plain(Table("Letters", columns, [row]), 34)
    assert lines[2] == "18f3a2b4c5d0a1b2c3d4  order..ation"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Zoë zahlt 5 €, 你好 🙂", "Zoë zahlt 5 €, 你好 🙂"),
        ("\x1b[31m\x07\x9b\u202e\u2028\ud800\n", "?[31m??????"),
    ],
)
def test_what_a_terminal_would_obey_is_not_shown(text: str, expected: str) -> None:
    assert legible(text) == expected


GROUPED = Table(
    "Routes",
    (
        Column("route", is_text=True),
        Column("req/s", group="last minute"),
        Column("errors", group="last minute"),
        Column("requests", group="total", optional=1),
        Column("refused", group="total", optional=2),
    ),
    [[Cell(text) for text in ("charges", "1.5", "0.0%", "7", "3")]],
)


def test_groups_stand_above_their_columns() -> None:
    assert plain(GROUPED, 80) == [
        "Routes    last minute   ----- total -----",
        "route    req/s  errors  requests  refused",
        "charges    1.5    0.0%         7        3",
    ]


def test_the_name_of_a_group_is_whole_and_has_dashes_on_both_sides_or_none() -> None:
    columns = (
        Column("route", is_text=True),
        Column("kept", group="last minute"),
        Column("requests", group="total"),
    )
    rows: list[Sequence[Cell]] = [[Cell(text) for text in ("a-long-name", "1", "2")]]
    assert plain(Table("Letters", columns, rows), 80) == [
        "Letters      last minute   total",
        "route               kept  requests",
        "a-long-name            1         2",
    ]
    assert plain(Table("Letters", columns, rows), 27)[0] == "Letters      last   total"


@pytest.mark.parametrize(
    ("max_width", "title", "headings"),
    [
        (41, "Routes", "route    req/s  errors  requests  refused"),
        (40, "Routes (+1 column if wider)", "route    req/s  errors  requests"),
        (31, "Routes (+2 columns if wider)", "route    req/s  errors"),
        (10, "Routes (+2 columns if wider)", "route    req/s  errors"),
    ],
)
def test_columns_that_matter_less_give_way_and_the_title_says_so(
    max_width: int, title: str, headings: str
) -> None:
    lines = plain(GROUPED, max_width)
    assert lines[0].startswith(title)
    assert lines[-2] == headings


def test_a_sentence_goes_on_in_the_next_line() -> None:
    columns = (Column("", is_text=True), Column("", is_text=True, wraps=True))
    row = (Cell("route api"), Cell("10 of 25 requests failed in the last minute: 503 x10"))
    assert plain(Table("Trouble", columns, [row]), 40) == [
        "Trouble",
        "route api  10 of 25 requests failed in",
        "           the last minute: 503 x10",
    ]


def test_a_line_is_broken_between_words_and_keeps_its_tones() -> None:
    line = (Cell("store: "), Cell("down", Tone.BAD), Cell(", redis://127.0.0.1:6379/0, 4 errors"))
    broken = wrap_line(line, 30)
    assert [text_of(piece) for piece in broken] == [
        "store: down,",
        "  redis://127.0.0.1:6379/0, 4",
        "  errors",
    ]
    assert Cell("down", Tone.BAD) in broken[0]


def test_a_page_has_its_notes_below_its_tables() -> None:
    page = Page([(Cell("first"),)], [table(("a", "1", "-"))], [(Cell("last"),)])
    lines = [text_of(line) for line in page_lines(page, 80)]
    assert (lines[0], lines[1], lines[2], lines[-2:]) == ("first", "", "Routes", ["", "last"])
