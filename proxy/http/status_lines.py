"""Status lines: the first line of a response (RFC 9112 4)."""

import re
from http import HTTPStatus

STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s, s.phrase.encode()) for s in HTTPStatus}
"""By status, the line with the standard reason phrase: nearly every response begins with it."""

_NAMES = {status.value: status.phrase.encode() for status in HTTPStatus}

# RFC 9112 4: blanks, visible characters and bytes above ASCII.
_is_reason = re.compile(rb"[\t \x21-\x7e\x80-\xff]+").fullmatch


def status_line(status: int, reason: bytes) -> bytes:
    """Write a status line; with the standard reason phrase if *reason* is not a valid one."""
    return b"HTTP/1.1 %d %b" % (status, reason if _is_reason(reason) else _NAMES.get(status, b""))
