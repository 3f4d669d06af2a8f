"""The first line of a response."""

import re
from http import HTTPStatus

USUAL = {s.value: b"HTTP/1.1 %d %b\r\n" % (s, s.phrase.encode()) for s in HTTPStatus}
"""What nearly every response begins with, by its status."""

_NAMES = {status.value: status.phrase.encode() for status in HTTPStatus}

# RFC 9112 4: blanks, visible characters and bytes above ASCII.
_is_reason = re.compile(rb"[\t \x21-\x7e\x80-\xff]+").fullmatch


def status_line(status: int, reason: bytes) -> bytes:
    """The first line of a response; without a proper *reason*, the status's usual name."""
    return b"HTTP/1.1 %d %b" % (status, reason if _is_reason(reason) else _NAMES.get(status, b""))
