"""Ways to spoil a message, and to cut it into segments."""

from collections.abc import Callable
from itertools import pairwise

from hypothesis import strategies as st

# The bytes around which parsers have disagreed (smuggler's list), and a few of our own.
CONTROLS = [
    *(bytes([byte]) for byte in b'\x00\x01\x04\x08\t\n\x0b\x0c\r\x1f \x7f\x85\xa0\xff,:;"0-'),
    b"\r\n",
    b"\r\n ",
]

FRAMING = [
    b"Content-Length: 0",
    b"Content-Length: 3",
    b"Content-Length: 5, 5",
    b"Content-Length: +3",
    b"Content-Length: -1",
    b"Content-Length: 0x3",
    b"Content-Length: 3 ",
    b"Content-Length : 3",
    b"Content-Length: 99999999999999999999",
    b"Content-Length:",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:",
    b" Transfer-Encoding: chunked",
    b"X: y\nTransfer-Encoding: chunked",
    b"X: y\rContent-Length: 4",
    b"Connection: close",
    b"Connection: Content-Length, Transfer-Encoding, Host",
    b"Connection: keep-alive",
    b"Trailer: Content-Length",
    b"Upgrade: websocket",
    b"Connection: upgrade",
]


Mutation = Callable[[bytes], bytes]


def _at(place: float, data: bytes) -> int:
    return int(place * (len(data) + 1))


def _insert(place: float, piece: bytes) -> Mutation:
    return lambda data: data[: _at(place, data)] + piece + data[_at(place, data) :]


def _flip(place: float, bit: int) -> Mutation:
    def flip(data: bytes) -> bytes:
        if not data:
            return data
        at = min(_at(place, data), len(data) - 1)
        return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]

    return flip


def _cut(place: float, size: int) -> Mutation:
    return lambda data: data[: _at(place, data)] + data[_at(place, data) + size :]


def _truncate(place: float) -> Mutation:
    return lambda data: data[: _at(place, data)]


def _repeat(place: float) -> Mutation:
    """One line twice: a field, a start line, a chunk."""

    def repeat(data: bytes) -> bytes:
        lines = data.split(b"\r\n")
        at = min(int(place * len(lines)), len(lines) - 1)
        return b"\r\n".join((*lines[: at + 1], *lines[at:]))

    return repeat


def _line(place: float, line: bytes) -> Mutation:
    """One more line among the others."""

    def add(data: bytes) -> bytes:
        lines = data.split(b"\r\n")
        return b"\r\n".join((*lines[: (at := 1 + int(place * len(lines)))], line, *lines[at:]))

    return add


def _line_end(place: float, end: bytes) -> Mutation:
    """One line ends otherwise."""

    def change(data: bytes) -> bytes:
        lines = data.split(b"\r\n")
        at = 1 + int(place * len(lines))
        return b"\r\n".join(lines[:at]) + end + b"\r\n".join(lines[at:])

    return change


def _digit(place: float, digit: int) -> Mutation:
    """Some number is another one: a length, a chunk's size, a version, a status."""

    def change(data: bytes) -> bytes:
        digits = [at for at, byte in enumerate(data) if 0x30 <= byte <= 0x39]
        if not digits:
            return data
        at = digits[min(int(place * len(digits)), len(digits) - 1)]
        return data[:at] + b"%d" % digit + data[at + 1 :]

    return change


_places = st.floats(0, 1)

mutations: st.SearchStrategy[Mutation] = st.one_of(
    st.builds(_line, _places, st.sampled_from(FRAMING)),
    st.builds(_insert, _places, st.sampled_from(CONTROLS)),
    st.builds(_digit, _places, st.integers(0, 9)),
    st.builds(_line_end, _places, st.sampled_from([b"\n", b"\r", b"\r\r\n", b"\r\n ", b"", b";"])),
    st.builds(_repeat, _places),
    st.builds(_flip, _places, st.integers(0, 7)),
    st.builds(_cut, _places, st.integers(1, 12)),
    st.builds(_truncate, _places),
    st.builds(_insert, _places, st.binary(min_size=1, max_size=8)),
)


@st.composite
def spoiled(draw: st.DrawFn, messages: st.SearchStrategy[bytes]) -> bytes:
    """A message with a few things wrong; now and then nothing."""
    data = draw(messages)
    for mutate in draw(st.lists(mutations, max_size=3)):
        data = mutate(data)
    return data


@st.composite
def in_segments(draw: st.DrawFn, streams: st.SearchStrategy[bytes]) -> list[bytes]:
    """The bytes of a stream, cut at random into pieces that arrive one by one."""
    data = draw(streams)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=4)))
    edges = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]
