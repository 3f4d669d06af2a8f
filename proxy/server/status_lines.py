"""Status lines, made beforehand for the statuses that have a name."""

from http import HTTPStatus

_STANDARD = {
    (status.value, status.phrase.encode()): b"HTTP/1.1 %d %b\r\n"
    % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_NAMES = {status.value: status.phrase.encode() for status in HTTPStatus}


def status_line(status: int, reason: bytes) -> bytes:
    """The first line of a response; without a *reason*, the status's usual name."""
    ready = _STANDARD.get((status, reason))
    if ready is not None:
        return ready
    return b"HTTP/1.1 %d %b\r\n" % (status, reason or _NAMES.get(status, b""))
