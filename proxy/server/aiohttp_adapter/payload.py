"""The body of a request as aiohttp's parser buffers it."""

from aiohttp.streams import EMPTY_PAYLOAD, StreamReader


def take_whole(payload: StreamReader) -> bytes:
    """Take all of a body that has come completely.

    Mostly it came in one piece. That one is taken as it is: ``read_nowait()`` asks a timer
    and splits chunks, which takes 5,000 instructions, and there is no flow left to control.
    """
    if payload is EMPTY_PAYLOAD:
        return b""  # a length that aiohttp does not go by: that of an upgrade
    pieces = payload._buffer  # noqa: SLF001 - has its contract test
    if len(pieces) == 1 and not payload._buffer_offset:  # noqa: SLF001 - as above
        return pieces.popleft()
    return payload.read_nowait()
