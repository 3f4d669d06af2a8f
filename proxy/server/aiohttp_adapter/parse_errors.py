"""What to answer when aiohttp's parser gives up."""

from aiohttp.http_exceptions import LineTooLong

from proxy.http.refusal import Refusal, RefusalReason

_BAD = Refusal(RefusalReason.BAD_REQUEST, "This is not a well-formed HTTP/1.1 request.", close=True)
_TARGET = Refusal(RefusalReason.TARGET_TOO_LONG, "Send a shorter request target.", close=True)
HEAD_TOO_LARGE = Refusal(
    RefusalReason.HEADERS_TOO_LARGE, "Send fewer or smaller header fields.", close=True
)
_LENGTH = Refusal(
    RefusalReason.BODY_TOO_LARGE, "The announced length of the body is too large.", close=True
)


def refusal_for(error: BaseException | None, max_line_size: int) -> Refusal:
    """Return the answer to a request that could not be parsed.

    The parser has one exception for a long target and a long field; which it
    was shows in the limit that it names, so the two limits must differ.
    """
    if isinstance(error, LineTooLong):
        return _TARGET if error.args[1] == max_line_size else HEAD_TOO_LARGE
    text = str(error)
    if "Too many headers" in text:
        return HEAD_TOO_LARGE
    if "Content-Length overflow" in text:
        return _LENGTH
    return _BAD
