"""The subject of ``explain``: a request and its route, and what is known before it is sent.

On the wire these questions are asked one by one, each in the stage of the pipeline that
needs the answer.
"""

from dataclasses import dataclass

from proxy.http.header_edits import compile_edits
from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.request_head import RequestHead
from proxy.policy.caller_fields import repeated_field, single_fields
from proxy.policy.idempotency.key import KeyReader, read_key
from proxy.policy.settings import RouteSettings, UpstreamSettings

_BAD_KEY = Refusal(RefusalReason.KEY_INVALID, "It is no key, or there are several.")
_NO_KEY = Refusal(RefusalReason.KEY_MISSING, "There is no key, and the route requires one.")


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
        return keys.required or bool(self._reader.read(self.head.raw).keys)

    @property
    def _reader(self) -> KeyReader:
        keys = self.route.idempotency
        header, scope = ("", ()) if keys is None else (keys.header, keys.scope)
        return KeyReader(header.encode(), [name.encode() for name in scope])

    def sends_once(self, name: bytes) -> bool:
        """Whether the upstream gets the client's own field *name* once."""
        return self.head.sends_once(name, compile_edits(self.route.request_headers))

    def refusal(self) -> Refusal | None:
        """Return why the request is refused before any attempt; None if it is not."""
        route, length = self.route, self.head.length
        upstreams = [self.upstream] if self.other is None else [self.upstream, self.other]
        single = single_fields(route, upstreams)
        repeated = None if single is None else single.refusal(self.head.raw, self.target)
        if repeated is not None:
            return repeated
        if route.max_body is not None and length > route.max_body:
            return Refusal(RefusalReason.BODY_TOO_LARGE, "The body is beyond max_body.")
        return self._key_refusal()

    def _key_refusal(self) -> Refusal | None:
        """Return why the route's idempotency refuses the request; None if it does not."""
        keys = self.route.idempotency
        if keys is None or not self.is_keyed:
            return None
        found = self._reader.read(self.head.raw)
        if read_key(found.keys) is None:
            return _BAD_KEY if found.keys else _NO_KEY
        if found.repeated:
            return repeated_field(found.repeated)
        if keys.scope_required and not found.caller:
            return Refusal(RefusalReason.BAD_REQUEST, "None of the headers of scope is there.")
        if self.head.length > self.route.buffer:
            return Refusal(
                RefusalReason.BODY_TOO_LARGE,
                "With a key the body has to be kept, and it is beyond buffer.",
            )
        return None
