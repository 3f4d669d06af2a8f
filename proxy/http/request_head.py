"""The head of a request: its header fields are sorted in one pass into what may go upstream.

The parser in front of this has refused what is malformed in itself: bare CR,
NUL, obs-fold, doubled or contradictory lengths. What the parser lets through and
another HTTP implementation could read differently is refused here. The head is not
passed on as received: the upstream's head is written anew from the parts collected here.

The loop runs for every request, hence its plainness: one dictionary look-up per
field decides, and only fields that mean something to the proxy leave the fast path.
"""

import re

from proxy.http.durations import parse_duration
from proxy.http.fields import HOP_BY_HOP, has_option, nominated
from proxy.http.forwarded import NO_FORWARDED_FIELDS, ForwardedFields
from proxy.http.framing import CHUNKED, LONGEST
from proxy.http.header_edits import CompiledEdits
from proxy.http.hop import DEFAULT_HOP, Hop
from proxy.http.refusal import Refusal, RefusalReason

# What a field means to the proxy. Plain numbers: they are looked up for every field of
# every request.
(
    _DROP,
    _HOST,
    _CONTENT_LENGTH,
    _TRANSFER_ENCODING,
    _CONNECTION,
    _EXPECT,
    _UPGRADE,
    _VIA,
    _FORWARDED_FOR,
    _FORWARDED_PROTO,
    _FORWARDED_HOST,
    _FORWARDED,
    _TRUSTED_ONLY,
    _REQUEST_ID,
    _SINGLETON,
    _MAX_FORWARDS,
    _TIMEOUT,
) = range(17)

_FIELDS: dict[bytes, int] = {
    **dict.fromkeys(HOP_BY_HOP, _DROP),
    b"host": _HOST,
    b"content-length": _CONTENT_LENGTH,
    b"transfer-encoding": _TRANSFER_ENCODING,
    b"connection": _CONNECTION,
    b"expect": _EXPECT,
    b"upgrade": _UPGRADE,
    b"via": _VIA,
    b"x-forwarded-for": _FORWARDED_FOR,
    b"x-forwarded-proto": _FORWARDED_PROTO,
    b"x-forwarded-host": _FORWARDED_HOST,
    b"forwarded": _FORWARDED,
    b"x-request-id": _REQUEST_ID,
    b"max-forwards": _MAX_FORWARDS,
    b"holdfast-timeout": _TIMEOUT,
    # Two credentials: whichever the proxy and the upstream chose, a caller could be
    # served in another's name.
    b"authorization": _SINGLETON,
    # Fields about earlier hops that this proxy does not write itself.
    b"x-real-ip": _TRUSTED_ONLY,
    b"x-forwarded-port": _TRUSTED_ONLY,
    b"x-forwarded-prefix": _TRUSTED_ONLY,
    b"x-forwarded-server": _TRUSTED_ONLY,
    b"x-forwarded-ssl": _TRUSTED_ONLY,
    b"x-forwarded-scheme": _TRUSTED_ONLY,
    # Look-alikes: CGI-style servers read "_" as "-".
    b"content_length": _DROP,
    b"transfer_encoding": _DROP,
    b"x_forwarded_for": _DROP,
    b"x_forwarded_proto": _DROP,
    b"x_forwarded_host": _DROP,
    b"x_real_ip": _DROP,
    b"x_request_id": _DROP,
}

_OF_EARLIER_HOPS = (_FORWARDED_FOR, _FORWARDED_PROTO, _FORWARDED_HOST, _FORWARDED)
"""In the order of the attributes of :class:`ForwardedFields`."""

_is_request_id = re.compile(rb"[A-Za-z0-9._-]{1,128}").fullmatch

_EMPTY: frozenset[bytes] = frozenset()

_LENGTH = Refusal(
    RefusalReason.BODY_TOO_LARGE, "The announced length of the body is too large.", close=True
)
_BAD_TIMEOUT = Refusal(
    RefusalReason.BAD_REQUEST,
    "Holdfast-Timeout has to be one duration with a unit, send 1500ms (say).",
)


class RequestHead:
    """The fields of one request, sorted into what ends at this hop and what is passed on."""

    __slots__ = (
        "expect",
        "forwarded_fields",
        "hop",
        "host",
        "length",
        "lines",
        "max_forwards",
        "nominated",
        "raw",
        "request_id",
        "timeout",
        "trusted_only",
        "upgrade",
        "via",
        "via_line",
    )

    def __init__(self, raw: tuple[tuple[bytes, bytes], ...], hop: Hop = DEFAULT_HOP) -> None:
        self.raw = raw
        self.hop = hop
        """This proxy's name and protected fields when the request came."""
        self.lines: list[bytes] = []
        """Fields that go upstream as received, a line each."""
        self.host = b""
        self.length = 0
        """Bytes of body to come, or CHUNKED."""
        self.expect = b""
        self.upgrade = b""
        """Value of Upgrade, if Connection lists upgrade too."""
        self.via = b""
        """The earlier hops, as received."""
        self.via_line = hop.via
        """The Via field for the upstream: this hop, after the earlier ones."""
        self.request_id = ""
        """The client's own X-Request-Id, if it is well-formed and there is only one."""
        self.timeout: float | None = None
        """Seconds that the client grants the exchange (Holdfast-Timeout; it is not passed on)."""
        self.forwarded_fields = NO_FORWARDED_FIELDS
        self.trusted_only: list[bytes] = []
        """Lines that go upstream only if the peer is trusted."""
        self.max_forwards: int | None = None
        self.nominated = _EMPTY

    def lines_without(self, names: frozenset[bytes]) -> list[bytes]:
        """Return the lines for the upstream, less the fields called *names*."""
        return [
            name + b": " + value
            for name, value in self.raw
            if (lower := name.lower()) not in names
            and lower not in self.nominated
            and _FIELDS.get(lower) in _PASSED_ON
        ]

    def sends_once(self, name: bytes, edits: CompiledEdits | None) -> bool:
        """Whether the upstream gets the client's own field *name* (in lower case) once.

        *edits* are the route's: a field that they set or remove is not the client's own.
        """
        if edits is not None and name in edits.names:
            return False
        fields = (line.partition(b":") for line in self.lines)
        values = [value.strip() for field, _, value in fields if field.lower() == name]
        return len(values) == 1 and bool(values[0])


_PASSED_ON = frozenset({None, _SINGLETON, _MAX_FORWARDS})


def read_request_head(  # noqa: C901, PLR0912, PLR0915 - one flat pass is the point; see the module's text
    raw: tuple[tuple[bytes, bytes], ...], *, http_1_0: bool, hop: Hop = DEFAULT_HOP
) -> RequestHead | Refusal:
    """Sort the fields of a request, or return why *hop* cannot serve it."""
    head = RequestHead(raw, hop)
    keep = head.lines.append
    connection: list[bytes] = []
    forwarded: dict[int, list[bytes]] | None = None
    authorized = False
    for name, value in raw:
        field = _FIELDS.get(name.lower())
        if field is None:
            keep(name + b": " + value)
        elif field == _HOST:
            head.host = value
        elif field == _CONTENT_LENGTH:
            length = head.length = int(value)
            if length > LONGEST:
                return _LENGTH
        elif field == _CONNECTION:
            if value != b"keep-alive":  # which says nothing
                connection.append(value)
        elif field == _TRANSFER_ENCODING:
            refusal = _check_transfer_encoding(value, http_1_0=http_1_0)
            if refusal is not None:
                return refusal
            head.length = CHUNKED
        elif field == _REQUEST_ID:
            # With two ids neither is trusted.
            fit = _is_request_id(value) and not head.request_id
            head.request_id = value.decode() if fit else ""
        elif field == _VIA:
            head.via = head.via + b", " + value if head.via else value
        elif field == _SINGLETON:
            if authorized:
                return Refusal(
                    RefusalReason.BAD_REQUEST, "Send one Authorization field, not several."
                )
            authorized = True
            keep(name + b": " + value)
        elif field == _EXPECT:
            head.expect = value
        elif field == _UPGRADE:
            head.upgrade = value
        elif field == _MAX_FORWARDS:
            head.max_forwards = int(value) if value.isdigit() and len(value) < 10 else None
            keep(name + b": " + value)
        elif field == _TIMEOUT:
            seconds = parse_duration(value.decode("latin-1"))
            if seconds is None or head.timeout is not None:
                return _BAD_TIMEOUT
            head.timeout = seconds
        elif field == _TRUSTED_ONLY:
            head.trusted_only.append(name + b": " + value)
        elif field != _DROP:
            forwarded = forwarded or {}
            forwarded.setdefault(field, []).append(value)
    if forwarded is not None:
        values = (tuple(forwarded.get(field, ())) for field in _OF_EARLIER_HOPS)
        head.forwarded_fields = ForwardedFields(*values)
    if connection:
        _apply_connection(head, connection)
    else:
        head.upgrade = b""
    if head.via or http_1_0:
        if hop.is_in(head.via):
            return _loop(hop)
        ours = b"%b %b" % (b"1.0" if http_1_0 else b"1.1", hop.name)
        head.via_line = b"Via: %b" % (head.via + b", " + ours if head.via else ours)
    return head


def _check_transfer_encoding(value: bytes, *, http_1_0: bool) -> Refusal | None:
    if http_1_0:
        detail = "Transfer-Encoding does not exist in HTTP/1.0, send Content-Length."
        return Refusal(RefusalReason.BAD_REQUEST, detail, close=True)
    coding = value.lower()
    if coding == b"chunked":
        return None
    if coding.endswith((b",chunked", b", chunked", b"\tchunked")) and coding.strip(b", \t"):
        detail = "Only the transfer coding chunked is supported."
        return Refusal(RefusalReason.NOT_IMPLEMENTED, detail, close=True)
    detail = "Transfer-Encoding must be chunked, or be left out."
    return Refusal(RefusalReason.BAD_REQUEST, detail, close=True)


def _apply_connection(head: RequestHead, connection: list[bytes]) -> None:
    head.nominated = nominated(connection, head.hop.protected)
    if head.nominated:
        head.lines = head.lines_without(_EMPTY)
    if head.upgrade and not has_option(connection, b"upgrade"):
        head.upgrade = b""


def _loop(hop: Hop) -> Refusal:
    name = hop.name.decode()
    return Refusal(
        RefusalReason.LOOP,
        f"Via says that this request has passed a proxy called {name}, as this one is. If that was "
        f"another one, name one of the two: write name: {name}-2 (say) at the top of its file.",
        close=True,
    )
