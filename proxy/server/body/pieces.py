"""The pieces of a body that is kept, in little more memory than its bytes take.

A client may send its body two bytes at a time. As objects of their own these would
cost twenty times their size, so they lie end to end, with a list of their sizes
beside them: another attempt sends the very same pieces.
"""

from array import array


class Pieces:
    """All pieces of a body from the first on, and which of them is the next to be read."""

    __slots__ = ("_data", "_next", "_offset", "_sizes")

    def __init__(self) -> None:
        self._data = bytearray()
        self._sizes = array("I")
        self._next = 0
        self._offset = 0

    @property
    def has_next(self) -> bool:
        """Whether a piece is left to be read."""
        return self._next < len(self._sizes)

    @property
    def number(self) -> int:
        """How many pieces have been read."""
        return self._next

    def add(self, piece: bytes) -> None:
        """Keep a piece that has just been read, after all the others."""
        self._data += piece
        self._sizes.append(len(piece))
        self._next = len(self._sizes)
        self._offset = len(self._data)

    def take(self) -> bytes:
        """Read the next piece."""
        begin, end = self._offset, self._offset + self._sizes[self._next]
        self._next += 1
        self._offset = end
        with memoryview(self._data) as data:
            return bytes(data[begin:end])

    def all(self) -> bytes:
        """Return all pieces in one."""
        return bytes(self._data)

    def rewind(self) -> None:
        """Read from the first piece on again."""
        self._next = self._offset = 0
