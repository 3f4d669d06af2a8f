"""What a terminal sends when keys are pressed."""

import pytest

from proxy.cli.keyboard import KeyPress, KeyPressReader


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"\x1b[A\x1b[B", [KeyPress.UP, KeyPress.DOWN]),
        (b"\x1bOA\x1bOB", [KeyPress.UP, KeyPress.DOWN]),
        (b"kj\r", [KeyPress.UP, KeyPress.DOWN, KeyPress.DOWN]),
        (b"\x1b[5~\x1b[6~b ", [KeyPress.PAGE_UP, KeyPress.PAGE_DOWN] * 2),
        (b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1bOH\x1bOFgG", [KeyPress.HOME, KeyPress.END] * 4),
        (b"sq", [KeyPress.SORT, KeyPress.QUIT]),
        (b"\x04", [KeyPress.QUIT]),
        (b"x\x1b[15~\x1b[1;5C\xc3\xa4", []),
    ],
)
def test_keys(sent: bytes, keys: list[KeyPress]) -> None:
    assert KeyPressReader().read(sent) == keys


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_sequence_in_two_pieces(at: int) -> None:
    reader = KeyPressReader()
    found = reader.read(b"\x1b[6~"[:at]) + reader.read(b"\x1b[6~"[at:] + b"q")
    assert found == [KeyPress.PAGE_DOWN, KeyPress.QUIT]
