import pytest
from hypothesis import given, strategies as st

from proxy.cli.render.tables import Cell, Column, Table, cut, plain
from proxy.cli.untrusted_json import legible

COLUMNS = (Column("route", is_text=True), Column("requests"), Column("which", is_text=True))


def table(*rows: tuple[str, str, str]) -> Table:
    return Table("Routes", COLUMNS, [[Cell(text) for text in row] for row in rows])


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
