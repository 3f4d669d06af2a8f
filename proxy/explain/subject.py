"""The subject of ``explain``: a request and its route, and what is known before any stage runs.

On the wire these are questions of the server, which has read the request and admits it.
"""

from dataclasses import dataclass, replace

from proxy.http.header_edits import compile_edits
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.request_head import RequestHead, read_request_head
from proxy.policy.caller_fields import single_fields
from proxy.policy.idempotency.key import KeyReader
from proxy.policy.settings import RouteSettings, UpstreamSettings

_TOO_LARGE = Refusal(RefusalReason.BODY_TOO_LARGE, "The body is larger than max_body.")


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request to be explained, parsed as the proxy parses it."""

    method: str
    host: str
    """The host in lower case, without port; empty if there is none."""
    path: str
    target: str
    """Path and query."""
    head: RequestHead


@dataclass(frozen=True, slots=True)
class Subject:
    """A request, its route and the upstreams that it may go to."""

    method: str
    head: RequestHead
    route: RouteSettings
    upstream: UpstreamSettings
    other: UpstreamSettings | None = None
    """The fallback upstream, if the route has one."""
    target: str = "/"
    """Path and query."""

    @property
    def upstreams(self) -> tuple[UpstreamSettings, ...]:
        """The upstream of the route, then that of its fallback if it has one."""
        return (self.upstream,) if self.other is None else (self.upstream, self.other)

    @property
    def is_judged(self) -> bool:
        """Whether attempts get a verdict (retry or fallback); else the first is the last."""
        route = self.route
        return (route.retry is not None or route.fallback is not None) and not self.is_tunnelled

    @property
    def is_tunnelled(self) -> bool:
        """Whether the request switches to another protocol."""
        head = self.head
        wanted = head.upgrade.lower().decode("latin-1")
        return wanted in self.route.upgrades and self.method == "GET" and not head.length

    @property
    def is_keyed(self) -> bool:
        """Whether the route checks an idempotency key for it, be it good or bad or missing."""
        keys = self.route.idempotency
        if keys is None or self.method not in keys.methods or self.is_tunnelled:
            return False
        scope = [name.encode() for name in keys.scope]
        return keys.required or bool(
            KeyReader(keys.header.encode(), scope).read(self.head.raw).keys
        )

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* once."""
        return self.head.sends_once(name, compile_edits(self.route.request_headers))

    def with_field(self, name: bytes, value: bytes) -> "Subject":
        """Return the request with *value* in its only field *name* (in lower case)."""
        others = (field for field in self.head.raw if field[0].lower() != name)
        head = read_request_head((*others, (name, value)), http_1_0=False, hop=self.head.hop)
        return self if isinstance(head, Refusal) else replace(self, head=head)

    def refusal(self) -> Refusal | None:
        """Return why the request is not admitted; None if it is, and meets the stages."""
        route = self.route
        single = single_fields(route, self.upstreams)
        repeated = None if single is None else single.refusal(self.head.raw, self.target)
        if repeated is not None:
            return repeated
        is_too_large = route.max_body is not None and self.head.length > route.max_body
        return _TOO_LARGE if is_too_large else None
