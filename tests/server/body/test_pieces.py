"""Kept pieces: the same again, in the same order, at little more than their size."""

import sys

from hypothesis import given, strategies as st

from proxy.server.body.pieces import Pieces

bodies = st.lists(st.binary(min_size=1, max_size=20), max_size=30)


def rest_of(pieces: Pieces) -> list[bytes]:
    taken = []
    while pieces.has_next:
        taken.append(pieces.take())
    return taken


@given(body=bodies, more=bodies, read=st.integers(0, 30))
def test_each_attempt_reads_the_same_pieces(
    body: list[bytes], more: list[bytes], read: int
) -> None:
    pieces = Pieces()
    for piece in body:
        pieces.add(piece)
        assert not pieces.has_next, "a piece that is added has been read"
    pieces.rewind()
    for piece in body[:read]:
        assert pieces.take() == piece
    pieces.rewind()
    assert rest_of(pieces) == body
    for piece in more:
        pieces.add(piece)
    assert pieces.number == len(body) + len(more)
    pieces.rewind()
    assert rest_of(pieces) == body + more


def test_small_pieces_cost_little() -> None:
    pieces, count = Pieces(), 50_000
    for _ in range(count):
        pieces.add(b"ab")
    cost = sys.getsizeof(pieces._data) + sys.getsizeof(pieces._sizes)
    assert cost < 4 * 2 * count
