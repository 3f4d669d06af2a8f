"""Tell a request's first header field from the last trailer field of the request before it.

aiohttp's parser keeps the last trailer of a chunked request, and reports it as the first field
of the next request on the connection: the Authorization or Idempotency-Key of one caller could
be put into the request of another that shares the connection behind a load balancer. The bytes
tell the two apart. A last trailer stands before an empty line and behind a chunk or another
trailer; a first field stands behind a request line.
"""

import re

END = b"\r\n\r\n"
"""Ends a chunked body, with or without trailers, and every head."""
_MOST_BEFORE = 512
"""Bytes kept of what stands before the last line."""
_LONGEST_LINE = 64 * 1024
"""Bytes of a line that is still coming. Of a longer one the beginning is forgotten: should it be a
trailer after all, the request behind it does not have that field and is refused."""

_is_last_chunk = re.compile(rb"0+[ \t]*(?:;[^\r\n]*)?").fullmatch
# No trailer reads like this, for its name ends in a colon; and no chunk's extensions do, since
# a blank in them stands within quotes.
_is_request_line = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ [^ \r\n]+ HTTP/\d\.\d").fullmatch
_may_become_trailer = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]*(?::[^\r\n]*)?").fullmatch


def ends_with_trailer(received: bytes) -> bool:
    """Whether a chunked body, whose last bytes *received* has, may end with a trailer field."""
    last_line = received[: -len(END)].rpartition(b"\r\n")[2]
    return _is_last_chunk(last_line) is None


def is_first_field(name: bytes, value: bytes, received: bytes) -> bool:
    """Whether the field was sent behind a request line, and nowhere as a trailer.

    *received* has all bytes from the possible trailer to the end of the request's head.
    """
    # Whatever a client puts into a body, it is read once: blanks are not tried in several ways.
    line = re.escape(name) + rb":[ \t]*+" + re.escape(value) + rb"[ \t]*+\r\n"
    is_behind_a_request_line = False
    for found in re.finditer(rb"(?:\A|(?<=\r\n))(?=%b(\r\n)?)" % line, received):
        if _is_request_line(_line_before(received, found.start())):
            is_behind_a_request_line = True
        elif found[1]:
            return False
    return is_behind_a_request_line


def _line_before(received: bytes, start: int) -> bytes:
    """Return the line that ends where the one at *start* begins, without a copy of all before."""
    end = max(start - 2, 0)
    break_before = received.rfind(b"\r\n", 0, end)
    return received[break_before + 2 if break_before >= 0 else 0 : end]


def worth_keeping(received: bytes) -> bytes:
    """Return the end of *received*, the body of a request so far, that may be part of a trailer."""
    text = received.rstrip(b"\r\n")
    end_before = text.rfind(b"\r\n")
    start = end_before + 2 if end_before >= 0 else 0
    if len(text) - start > _LONGEST_LINE or _may_become_trailer(text, start) is None:
        return b""
    return received[max(end_before - _MOST_BEFORE, 0) :]
