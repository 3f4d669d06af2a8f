"""How a request with a key ended, in a form that any store can keep and any instance read.

A packed result begins with the number of its version and a letter for its type, then a
checksum over the name of its record and all that follows. So a result that was cut short,
written by another program or moved to another key is noticed, and never served.
"""

from dataclasses import dataclass
from hashlib import blake2b

from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import KeptResponse

_VERSION = b"1"
_RESPONSE, _REFUSAL, _FALLBACK, _NOTHING = b"R", b"X", b"F", b"N"
_CHECKSUM = 16
_CONTENT = 2 + _CHECKSUM
"""Where the content begins."""
_END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class StoredFallback:
    """The route's fixed answer: each request that waited gets its own."""


@dataclass(frozen=True, slots=True)
class NotKept:
    """A response that was too large to be given to any client but its own."""


Result = KeptResponse | Refusal | StoredFallback | NotKept


class BadResult(ValueError):
    """Raised for bytes that are no result packed by this module."""


class InHand(bytes):
    """A response that never leaves this process.

    No other process could have touched it, so it needs no checksum, which took a tenth of what a
    key costs.
    """

    __slots__ = ()


def in_hand(head: bytes, body: bytes) -> InHand:
    """Pack a :class:`KeptResponse` for this process alone."""
    return InHand(head + _END_OF_HEAD + body)


def pack(name: str, result: Result) -> bytes:
    """Return *result* as bytes, for the record called *name*."""
    match result:
        case KeptResponse():
            letter = _RESPONSE
            content = b"".join((result.head, _END_OF_HEAD, result.body))
        case Refusal():
            letter = _REFUSAL
            wait = "" if result.wait is None else str(result.wait)
            texts = (result.reason.value, wait, result.cause, result.detail)
            content = "\n".join(texts).encode()
        case StoredFallback():
            letter, content = _FALLBACK, b""
        case NotKept():
            letter, content = _NOTHING, b""
    return _VERSION + letter + _checksum(name, letter, content) + content


def unpack(name: str, data: bytes) -> Result:
    """Return the result that was packed for the record *name*. Raises :class:`BadResult`."""
    if isinstance(data, InHand):
        return _response(data, 0)
    version, letter = data[:1], data[1:2]
    if version != _VERSION:
        raise BadResult("another version")
    content = memoryview(data)[_CONTENT:]
    if data[2:_CONTENT] != _checksum(name, letter, content):
        raise BadResult("checksum")
    match letter:
        case b"R":
            return _response(data, _CONTENT)
        case b"X":
            return _refusal(bytes(content))
        case b"F":
            return StoredFallback()
        case b"N":
            return NotKept()
        case _:
            raise BadResult("of no kind that is known")


def _response(data: bytes, start: int) -> KeptResponse:
    """Return the response that begins at *start* of *data*."""
    end = data.find(_END_OF_HEAD, start)
    head = data[start:end]
    return KeptResponse(int(head[9:12]), head, memoryview(data)[end + len(_END_OF_HEAD) :])


def _refusal(content: bytes) -> Refusal:
    reason, wait, cause, detail = content.decode().split("\n", 3)
    if reason not in set(RefusalReason):
        raise BadResult("a reason that is not known here")
    return Refusal(RefusalReason(reason), detail, wait=int(wait) if wait else None, cause=cause)


def _checksum(name: str, letter: bytes, content: bytes | memoryview) -> bytes:
    start = b"%b%b%b|" % (_VERSION, letter, name.encode())
    checksum = blake2b(start, digest_size=_CHECKSUM, person=b"holdfast result")
    checksum.update(content)
    return checksum.digest()
