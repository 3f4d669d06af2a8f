"""A request as it goes on the wire to an upstream, wherever it came from."""

from abc import abstractmethod

from proxy.core import Exchange
from proxy.http.framing import CHUNKED
from proxy.http.request_head import RequestHead
from proxy.http.target import rewrite

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class OutgoingExchange(Exchange):
    """The half of an exchange that faces the upstream."""

    __slots__ = ("_rest", "head", "http_1_0", "id_line")

    head: RequestHead
    http_1_0: bool
    """Whether the client speaks the older version."""
    id_line: bytes
    """The request's id as a field."""
    _rest: bytes
    """Everything after Host, once it was sent; empty before."""

    @abstractmethod
    def identity_lines(self) -> bytes:
        """The lines that tell the upstream who asked."""

    @property
    def host(self) -> bytes:
        """The host that the client asked."""
        return self.head.host

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* once."""
        return self.head.sends_once(name, self.route.request_edits)

    def request_bytes(
        self, authority: bytes, base_path: str, whole: bytes | None, *, preserve_host: bool
    ) -> bytes:
        """The head as it goes on the wire; see :class:`proxy.core.Exchange`."""
        rest = self._rest
        if not rest:
            rest = self._rest = self._make_rest(whole)
        host = self.head.host if preserve_host and self.head.host else authority
        target, strip_prefix = self.target, self.route.settings.strip_prefix
        if strip_prefix or base_path:
            target = rewrite(target, strip_prefix, base_path)
        start = f"{self.method} {target} HTTP/1.1\r\nHost: "
        return start.encode("utf-8", "surrogateescape") + host + b"\r\n" + rest

    def _make_rest(self, whole: bytes | None) -> bytes:
        """Everything after Host: the same for each attempt, at each address."""
        head = self.head
        lines = head.lines
        if self.method == "OPTIONS" and head.max_forwards is not None:
            lines = head.lines_without(frozenset({b"max-forwards"}))
            lines.append(b"Max-Forwards: %d" % (head.max_forwards - 1))
        identity = self.identity_lines()
        edits = self.route.request_edits
        if edits is None:
            ours: tuple[bytes, ...] = (identity, self.id_line)
        else:
            lines = edits.apply([*lines, *identity.split(b"\r\n"), self.id_line])
            ours = ()
        return b"\r\n".join(
            [  # speed: a tuple of parts that are unpacked is made from a list
                *lines,
                *self._framing(whole),
                head.via_line(b"1.0" if self.http_1_0 else b"1.1"),
                *ours,
                b"",
                b"",
            ]
        )

    def _framing(self, whole: bytes | None) -> tuple[bytes, ...]:
        body = self.body
        if body is None:
            if self.upgrade:
                return (b"Connection: Upgrade", b"Upgrade: websocket")
            # RFC 9110 8.6: a method that could have a body says that it has none.
            return (b"Content-Length: 0",) if self.method in _METHODS_WITH_BODY else ()
        if whole is not None:
            return (b"Content-Length: %d" % len(whole),)
        if body.length != CHUNKED:
            return (b"Content-Length: %d" % body.length,)
        return (b"Transfer-Encoding: chunked",)
