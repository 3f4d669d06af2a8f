"""The exchange of a dead letter that is replayed, without a client."""

from proxy.core.client_identity import ClientIdentity
from proxy.core.clientless import ClientlessExchange, CompleteBody
from proxy.core.clock import Clock
from proxy.core.route import Route
from proxy.http.fields import RawHeaders
from proxy.http.refusal import Refusal
from proxy.http.request_head import RequestHead, read_request_head
from proxy.policy.caller_fields import hop_for
from proxy.policy.dead_letter import DeadLetter, attempts_of, with_headers
from proxy.policy.settings import Settings


def read_dead_letter(
    dead_letter: DeadLetter, given: RawHeaders, route: Route, settings: Settings, clock: Clock
) -> "ReplayExchange | Refusal":
    """Make the exchange of *dead_letter* on *route*, with the header fields *given* besides."""
    headers = with_headers(dead_letter.headers, given)
    head = read_request_head(headers, http_1_0=False, hop=hop_for(settings))
    if isinstance(head, Refusal):
        return head
    if route.single_fields is not None:
        # Another configuration than today's may have accepted it.
        refusal = route.single_fields.refusal(headers, dead_letter.summary.target)
        if refusal is not None:
            return refusal
    exchange = ReplayExchange(dead_letter, head, route, settings, clock)
    keys = route.settings.idempotency
    has_own_key = keys is not None and any(
        name.lower() == keys.header.encode() for name, _ in given
    )
    # With a key that the operator gave, it is a request of its own.
    exchange.known_record = "" if has_own_key else dead_letter.record
    return exchange


class ReplayExchange(ClientlessExchange):
    """One replay of one dead letter."""

    __slots__ = ("earlier_attempts", "known_record")

    is_replay = True

    def __init__(
        self,
        dead_letter: DeadLetter,
        head: RequestHead,
        route: Route,
        settings: Settings,
        clock: Clock,
    ) -> None:
        summary = dead_letter.summary
        super().__init__(
            summary.method,
            summary.target,
            head,
            route,
            clock,
            settings=settings,
            request_id=summary.request_id,
            identity=ClientIdentity(dead_letter.peer, dead_letter.scheme),
            body=CompleteBody(dead_letter.body) if dead_letter.body else None,
        )
        self.earlier_attempts = attempts_of(dead_letter, clock.monotonic() - clock.wall())
        self.known_record = ""
        self.dead_letter = dead_letter.id

    def __repr__(self) -> str:
        return f"<replay of {self.dead_letter} {self.code or 'open'}>"
