"""The Date field of responses, formatted once a second."""

import time
from wsgiref.handlers import format_date_time

_made_for = 0
_line = b""


def date_line() -> bytes:
    """Return the line ``Date: …`` for the present second."""
    global _made_for, _line  # noqa: PLW0603 - a cache of one line, refreshed once a second
    now = int(time.time())
    if now != _made_for:
        _made_for = now
        _line = b"Date: %b" % format_date_time(now).encode()
    return _line
