"""Every key of the file: its type, its default and what it does.

The only place where keys are listed. The reader walks these models to check a
file, ``holdfast schema`` prints them as JSON Schema, and the settings are made
from them. Defaults are written as a user would write them, so that the schema
shows them so; the reader reads them like any other value.
"""

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import MinLen
from pydantic import BaseModel, ConfigDict, Field, create_model

from proxy.config.kinds.addresses import (
    AdminAddress,
    ListenAddress,
    ServerName,
    TrustedPeer,
    UpstreamUrl,
)
from proxy.config.kinds.base import Choice, Integer, Name, Number, Switch, Text, Token
from proxy.config.kinds.headers import EditableHeader, HeaderName, HeaderValue, Pseudonym
from proxy.config.kinds.idempotency import (
    IN_FLIGHT,
    KEPT_CLASSES,
    ON_AMBIGUOUS,
    ON_KEY_STORE_ERROR,
    CallerHeader,
    HonouredHeader,
    KeptStatus,
    KeyedMethod,
    MismatchStatus,
    RequestKeyHeader,
)
from proxy.config.kinds.locations import FilePath, FolderPath
from proxy.config.kinds.outcomes import (
    BUILT_IN as BUILT_IN_OUTCOMES,
    Outcome,
    Status,
)
from proxy.config.kinds.paths import HostPattern, Method, PathPattern, PathPrefix, Protocol
from proxy.config.kinds.processes import WorkerCount
from proxy.config.kinds.quantities import ByteRate, Duration, Size
from proxy.config.kinds.rates import CallRate
from proxy.config.kinds.retrying import Attempts, Jitter, Unsafe
from proxy.config.kinds.stores import (
    KeyPrefix,
    Password,
    RedisUrl,
    SqliteFile,
    StoreUrl,
    Username,
)
from proxy.config.kinds.throttling import (
    ALGORITHM,
    BURST,
    CONCURRENCY,
    ON_STORE_ERROR,
    CallerKey,
    DurationOrAuto,
)
from proxy.config.shorthands import JoinedByColon, MethodAndPath, OneOrMore, SetsKey, Switchable
from proxy.policy.settings import REFUSALS, USUAL_REFUSALS, Listen, Origin, Rate, ThrottleKey

_NO_REQUEST = "leaves no time for any request, write none for no limit"
_NO_BODY = "leaves no time for any body, write none for no limit"
_NO_ATTEMPT = "leaves no time for any attempt, write none for no limit"
_NO_WINDOW = "leaves no time to count in, write 10s (say)"
_NO_RESULT = "keeps no result, write 24h (say), or idempotency: false if that is meant"
_NO_LETTER = "keeps no letter, write 7d (say), or dead_letter: false if that is meant"
_NO_LEASE = "is too short to be renewed in time, write 1s or more"


def _key(description: str, default: object = ...) -> Any:  # noqa: ANN401 - the model says the type
    """Describe a key. Without *default* it must be there; None: nothing unless it is."""
    return Field(default, description=description)


class Section(BaseModel):
    """A mapping of the file with a fixed set of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    belongs_to: ClassVar[str]
    """Where its keys go, for someone who wrote one elsewhere."""
    alternatives: ClassVar[tuple[frozenset[str], ...]] = ()
    """Groups of keys that make no sense together: those of one displace those of another."""


class ListenTls(Section):
    """Serve TLS on this address."""

    belongs_to = "listen.tls"

    cert: Annotated[str, FilePath()] = _key("PEM file with the certificate and its chain.")
    key: Annotated[str, FilePath()] = _key("PEM file with the private key.")


class ListenOn(Section):
    """An address to accept connections on."""

    belongs_to = "listen"

    address: Annotated[Listen, ListenAddress()] = _key("host:port, [::1]:port or unix:/path.")
    tls: ListenTls | None = _key("Serve TLS with this certificate.", None)


class LimitKeys(Section):
    """What one client may cost."""

    belongs_to = "limits"

    header_bytes: Annotated[int, Size(least=1024)] = _key(
        "Largest request line and header fields together; beyond it 431 or 414.", "64KiB"
    )
    header_timeout: Annotated[
        float, Duration(zero="leaves no time for any header, write 10s (say)")
    ] = _key("Longest time from a request's first byte to the end of its header.", "10s")
    body_rate: Annotated[int | None, ByteRate()] = _key(
        "What a request body must bring on average over any 30 s in which it is waited for; below "
        "it 408. none: idle_timeout alone.",
        "500B/s",
    )
    keepalive: Annotated[
        float, Duration(zero="leaves no time for a second request, write 1s or more")
    ] = _key("How long an idle client connection is kept.", "75s")
    connections: Annotated[int, Integer(least=1)] = _key(
        "Most client connections at a time, TLS handshakes included; beyond it 503.", 20_000
    )
    replay_memory: Annotated[int, Size()] = _key(
        "Most bytes of request bodies that are kept for another attempt, shared by caller; beyond "
        "it a body is sent once.",
        "256MiB",
    )


class UpstreamTlsKeys(Section):
    """How to trust a TLS upstream, and how to show who we are."""

    belongs_to = "an upstream's tls"

    ca: Annotated[str | None, FilePath()] = _key(
        "PEM file with the authorities to trust in place of the system's.", None
    )
    cert: Annotated[str | None, FilePath()] = _key("PEM file with a client certificate.", None)
    key: Annotated[str | None, FilePath()] = _key("PEM file with its private key.", None)
    server_name: Annotated[str | None, ServerName()] = _key(
        "Name to ask for and to find in the certificate, in place of the URL's host.", None
    )
    verify: Annotated[bool, Switch()] = _key(
        "false accepts any certificate, so anyone on the way can read and change all of it.",
        default=True,
    )


class BudgetKeys(Section):
    """How many retries an upstream is asked to bear."""

    belongs_to = "an upstream's budget"

    ratio: Annotated[float, Number(0, 100)] = _key("Retries per request.", 0.2)
    min_per_second: Annotated[float, Number(0, 1_000_000)] = _key(
        "Retries per second that are allowed besides, however few requests there are.", 1
    )
    window: Annotated[float, Duration(zero=_NO_WINDOW)] = _key(
        "How long requests and retries are counted.", "10s"
    )


class BreakerKeys(Section):
    """When an address is left alone for a while."""

    belongs_to = "an upstream's breaker"

    failure_ratio: Annotated[float, Number(0, 1, above=True)] = _key(
        "Share of failures (connect, reset, timeout, protocol, 500, 502, 503, 504) that opens it.",
        0.5,
    )
    min_requests: Annotated[int, Integer(least=1)] = _key(
        "Fewer requests than this in the window do not open it.", 20
    )
    window: Annotated[float, Duration(zero=_NO_WINDOW)] = _key(
        "How long outcomes are counted.", "10s"
    )
    open_for: Annotated[
        float, Duration(zero="leaves the address no time to recover, write 30s (say)")
    ] = _key("How long the address gets no requests, before it is probed.", "30s")
    probes: Annotated[int, Integer(least=1, most=1000)] = _key(
        "Successes that close it again; also how many requests probe it at a time.", 3
    )


class PauseKeys(Section):
    """Whether an upstream that refuses may say when to come back, for everybody."""

    belongs_to = "throttle.pause"

    max: Annotated[
        float, Duration(zero="would obey no pause, write pause: false if that is meant")
    ] = _key("Longest pause; of one that asks for more, this much is obeyed.", "60s")


class ThrottleKeys(Section):
    """How many calls are let through, and who waits for how long."""

    belongs_to = "throttle"

    rate: Annotated[list[Annotated[Rate, CallRate()]], OneOrMore(none=True)] = _key(
        "Calls in a time: 100/s, 600/m, 10/500ms; or a list of which all hold: [10/s, 5000/h].",
        "none",
    )
    burst: Annotated[int | None, BURST] = _key(
        "none: never more than the rate's number in any window of its length, as the upstream "
        "counts them. A number B: B calls may go out at once, and B - 1 more in one window.",
        "none",
    )
    algorithm: Annotated[str, ALGORITHM] = _key(
        "gcra lets calls through at even intervals; window as soon as the rate's number allows, "
        "without a burst, and is not shared over redis.",
        "gcra",
    )
    margin: Annotated[
        float | None,
        DurationOrAuto(Duration(longest=60.0, units=("ms",), example="auto, or 20ms")),
    ] = _key(
        "By how much the time from sending to arrival may vary. auto: a fiftieth of the rate's "
        "time, at most 50ms. 0s trusts our own clock.",
        "auto",
    )
    concurrency: Annotated[int | None, CONCURRENCY] = _key(
        "Most calls in flight, from sending to the last byte of the response.", "none"
    )
    max_wait: Annotated[float | None, Duration(none=True)] = _key(
        "Longest wait before each attempt; beyond it 429, at once. 0s: no wait. none: as long as "
        "timeout allows.",
        "5s",
    )
    max_queue: Annotated[int, Integer(least=0)] = _key(
        "Most that wait; beyond it 429. 0: nobody waits.", 1000
    )
    key: Annotated[ThrottleKey | None, CallerKey(), JoinedByColon()] = _key(
        "What tells callers apart, each with a limit of its own: none, client_ip, header:NAME or "
        "query:NAME. Those without a value share one.",
        "none",
    )
    max_keys: Annotated[
        int, Integer(least=1, zero="would tell nobody apart, write key: none if that is meant")
    ] = _key(
        "Most callers that are told apart at a time; new ones beyond share 256 limits, unless the "
        "upstream has answered them below 400 before.",
        10_000,
    )
    pause: Annotated[PauseKeys | Literal[False], Switchable()] = _key(
        "Whether to send nothing for as long as an upstream says that refused a call.", {}
    )
    on_store_error: Annotated[str, ON_STORE_ERROR] = _key(
        "While redis does not answer: local (each instance its share of the limit), open (no "
        "limit) or closed (503).",
        "local",
    )


Throttle = Annotated[
    ThrottleKeys | Literal[False], Switchable(), SetsKey("rate", CallRate(), named=True)
]


_HONOURED: dict[str, Any] = {
    "header": (
        Annotated[str, HonouredHeader()],
        _key("The header field that carries the key.", "Idempotency-Key"),
    ),
    "for": (
        Annotated[
            float,
            Duration(
                zero="is no time to remember a key, write 24h (say)",
                units=("h", "s"),
                example="24h",
            ),
        ],
        _key(
            "How long it remembers a key. A POST is repeated by its key only within this time "
            "after the first attempt that may have run, less the time of one attempt.",
            "24h",
        ),
    ),
    "shared": (
        Annotated[bool, Switch()],
        _key(
            "Whether all its urls have one store of keys; if not, a POST that may have run is "
            "repeated only at the URL that it was sent to.",
            default=False,
        ),
    ),
}

# Made, since one of its keys is a word of Python's own.
HonoursKeyKeys = create_model(
    "HonoursKeyKeys",
    __base__=Section,
    __doc__="How the upstream knows a request again that it has run.",
    **_HONOURED,
)
HonoursKeyKeys.belongs_to = "an upstream's honours_key"


class UpstreamKeys(Section):
    """An HTTP service that requests are sent to."""

    belongs_to = "an upstream"

    urls: Annotated[list[Annotated[Origin, UpstreamUrl()]], MinLen(1)] = _key(
        "Where it is: http or https, host, port and a base path. A name stands for every address "
        "that it resolves to."
    )
    balance: Annotated[str, Choice("round_robin", "first")] = _key(
        "round_robin takes the addresses in turn; first takes the first that works.", "round_robin"
    )
    connect_timeout: Annotated[
        float, Duration(zero="leaves no time to connect, write 5s (say)")
    ] = _key("Longest wait for a connection, TLS handshake included.", "5s")
    idle_connections: Annotated[int, Integer(least=0)] = _key(
        "Most idle connections that are kept, per address.", 64
    )
    max_connections: Annotated[int, Integer(least=1)] = _key(
        "Most connections, per address; beyond it requests wait for connect_timeout, then 503.",
        1024,
    )
    keepalive: Annotated[
        float,
        Duration(zero="keeps no connection, write idle_connections: 0 if that is meant"),
    ] = _key(
        "Longest idle time of a connection that is used again; never beyond what the upstream "
        "itself announces.",
        "30s",
    )
    host: Annotated[str, Choice("upstream", "preserve")] = _key(
        "The Host that it sees: that of its URL (upstream) or that of the client (preserve).",
        "upstream",
    )
    tls: UpstreamTlsKeys = _key("For https URLs.", {})
    honours_key: Annotated[
        HonoursKeyKeys | Literal[False],
        Switchable(),
        SetsKey("header", HonouredHeader()),
    ] = _key(
        "Whether the upstream itself runs a request once, however often it is sent with the same "
        "Idempotency-Key; or the name of the header that it goes by.",
        default=False,
    )
    refused: list[Annotated[int, Status()]] = _key(
        "Statuses from 400 to 599 by which it says that it did not do the work. Add 503 or 529 "
        "where that is true.",
        list(USUAL_REFUSALS),
    )
    budget: Annotated[BudgetKeys | Literal[False], Switchable()] = _key(
        "How many retries it is asked to bear; false for any number.", {}
    )
    throttle: Throttle = _key(
        "Limits the calls of all routes to it together, besides each one's own.", default=False
    )
    breaker: Annotated[BreakerKeys | Literal[False], Switchable()] = _key(
        "Leaves an address alone for a while that fails too often.", default=False
    )


class MatchKeys(Section):
    """What a request must look like: all that is written here must hold."""

    belongs_to = "match"

    path: Annotated[list[Annotated[str, PathPattern()]], MinLen(1), OneOrMore()] = _key(
        "Path or list of paths. * is one segment, a final /** the rest.", ["/**"]
    )
    methods: Annotated[list[Annotated[str, Method()]] | None, MinLen(1)] = _key(
        "Methods; GET does not include HEAD. Default: every one.", None
    )
    host: Annotated[list[Annotated[str, HostPattern()]] | None, MinLen(1), OneOrMore()] = _key(
        "Host name or list of them, without port; *.example.com is every name below it. "
        "Default: every one.",
        None,
    )
    headers: dict[Annotated[str, HeaderName()], Annotated[str, HeaderValue()]] = _key(
        "Header fields and the values they must have; a final * stands for any rest. A request "
        "that fits, but has a field without such a * twice: 400.",
        {},
    )


class HeaderEditKeys(Section):
    """Header fields to set and to remove."""

    belongs_to = "headers.request or headers.response"

    set: dict[Annotated[str, EditableHeader()], Annotated[str, HeaderValue()]] = _key(
        "Fields to put in place of what is there. Merges with those of defaults and policies.", {}
    )
    remove: list[Annotated[str, EditableHeader()]] = _key("Fields to take out.", [])


class HeadersKeys(Section):
    """Changes to the header fields that pass through."""

    belongs_to = "headers"

    request: HeaderEditKeys = _key("On the way to the upstream.", {})
    response: HeaderEditKeys = _key("On the way back to the client.", {})


class BackoffKeys(Section):
    """How long to wait before a retry, where the upstream does not say."""

    belongs_to = "retry.backoff"

    strategy: Annotated[str, Choice("exponential", "linear", "constant", "fibonacci")] = _key(
        "How waits grow: exponential (base, base·factor, base·factor², …), linear (base, "
        "base+increment, …), constant, or fibonacci (base, base, 2·base, 3·base, …).",
        "exponential",
    )
    base: Annotated[float, Duration()] = _key(
        "The first wait, before it is spread; after a 429 at least 1s.", "100ms"
    )
    factor: Annotated[float, Number(1, 100)] = _key("Growth of an exponential wait.", 2)
    increment: Annotated[float | None, Duration()] = _key(
        "Growth of a linear wait. Default: the base.", None
    )
    max: Annotated[float, Duration()] = _key("No wait of ours is longer.", "30s")
    jitter: Annotated[str | float, Jitter()] = _key(
        "How waits are spread, so that callers do not return all at once: full (anything up to the "
        "wait), equal (the upper half), decorrelated (up to three times the last wait), none, or a "
        "number (0.2: 20 % less or more).",
        "full",
    )


class RetryAfterKeys(Section):
    """Whether an upstream may say when to come back."""

    belongs_to = "retry.retry_after"

    max: Annotated[
        float, Duration(zero="would follow no hint, write retry_after: false if that is meant")
    ] = _key(
        "Longest wait that is accepted; a longer one ends it, and the client gets the response.",
        "60s",
    )


class RetryKeys(Section):
    """When a request is sent again, and how soon."""

    belongs_to = "retry"

    attempts: Annotated[int, Attempts()] = _key("How often in total, the first included.", 3)
    on: Annotated[list[Annotated[str | int, Outcome()]], MinLen(1)] = _key(
        "After what: connect, refused, reset, timeout, protocol, statuses, 4xx, 5xx (without 501 "
        "and 505), 403+hint (if the response says when to come back), default (the built-in list).",
        list(BUILT_IN_OUTCOMES),
    )
    unsafe: Annotated[str, Unsafe()] = _key(
        "POST and PATCH: auto (not if they may have run, unless the upstream runs them once), "
        "never (only after connect), always (they may run twice).",
        "auto",
    )
    attempt_timeout: Annotated[float | None, Duration(zero=_NO_ATTEMPT, none=True)] = _key(
        "For one attempt up to the response's head; below timeout.", "none"
    )
    backoff: BackoffKeys = _key("How long to wait before a retry.", {})
    retry_after: Annotated[RetryAfterKeys | Literal[False], Switchable()] = _key(
        "Whether to wait for as long as the upstream says (Retry-After and its kin).", {}
    )


class IdempotencyKeys(Section):
    """What makes two requests the same, and what a duplicate gets."""

    belongs_to = "idempotency"

    header: Annotated[str, RequestKeyHeader()] = _key(
        "The header field that carries the key.", "Idempotency-Key"
    )
    methods: Annotated[list[Annotated[str, KeyedMethod()]], MinLen(1)] = _key(
        "On which methods a key counts: POST, PATCH, PUT, DELETE.", ["POST", "PATCH"]
    )
    required: Annotated[bool, Switch()] = _key(
        "Whether such a request needs a key; without one 400.", default=False
    )
    ttl: Annotated[float, Duration(zero=_NO_RESULT)] = _key(
        "How long a key is known after its request has ended: its result is kept, then the same "
        "key is a new one. A request that itself takes longer than this loses its key.",
        "24h",
    )
    scope: Annotated[
        list[Annotated[str, CallerHeader(), JoinedByColon(before="")]],
        OneOrMore(nothing="write [] if all callers are to share their keys"),
    ] = _key(
        "What tells callers apart, each with keys of its own: the hash of these header fields. "
        "One that is there twice: 400. Those with none of them share theirs; [] for everybody.",
        ["header:Authorization", "header:X-Api-Key"],
    )
    scope_required: Annotated[bool, Switch()] = _key(
        "Whether a request with a key needs a value in one of them; without 400.", default=False
    )
    in_flight: Annotated[str, IN_FLIGHT] = _key(
        "A duplicate while the first one is under way: wait (gets its result) or reject (409).",
        "wait",
    )
    mismatch_status: Annotated[int, MismatchStatus()] = _key(
        "For a key that comes back with another request: 422 or 409.", 422
    )
    keep: Annotated[list[Annotated[str | int, KeptStatus()]], MinLen(1)] = _key(
        "Statuses whose response is kept: numbers, 2xx, 3xx, 4xx, 5xx. A class leaves out 304, "
        "401, 403, 407, 408, 409, 421, 425 and 429; a number does not.",
        list(KEPT_CLASSES),
    )
    on_ambiguous: Annotated[str, ON_AMBIGUOUS] = _key(
        "It may have run and nothing was kept: release (a later duplicate runs) or hold (409 until "
        "ttl is over, or until the key is released by hand).",
        "release",
    )
    lease: Annotated[float, Duration(zero=_NO_LEASE, least=1.0)] = _key(
        "How long a key belongs to an instance that says nothing more. Renewed every third of it "
        "while the request runs; whoever could not renew it in time sends nothing any more.",
        "30s",
    )
    max_response: Annotated[int, Size()] = _key(
        "Largest response that is kept; a larger one is delivered, and duplicates get 409.", "1MiB"
    )
    on_store_error: Annotated[str, ON_KEY_STORE_ERROR] = _key(
        "While the store does not answer: closed (503) or open (the request runs, and a duplicate "
        "too).",
        "closed",
    )


class FallbackKeys(Section):
    """What the client gets in place of a failure."""

    belongs_to = "fallback"
    alternatives = (frozenset({"status", "headers", "body"}), frozenset({"upstream"}))

    on: Annotated[
        list[Annotated[str | int, Outcome("replaced", ("breaker_open",))]] | None, MinLen(1)
    ] = _key(
        "In place of what: the same words as in retry.on, and breaker_open (every address is left "
        "alone), which default includes here. Default: the route's retry.on and breaker_open.",
        None,
    )
    status: Annotated[int | None, Status(least=200)] = _key(
        "Status of a fixed answer, from 200 to 599.", None
    )
    headers: dict[Annotated[str, EditableHeader()], Annotated[str, HeaderValue()]] | None = _key(
        "Its header fields.", None
    )
    body: Annotated[str | None, Text()] = _key("Its body.", None)
    upstream: Annotated[str | None, Name()] = _key(
        "In place of a fixed answer: another upstream, which is asked once, within the time left. "
        "A request that may have run goes there only if its method may be repeated, or under "
        "unsafe: always.",
        None,
    )


_LetterOutcomes = list[Annotated[str | int, Outcome("kept", (REFUSALS,))]]


class LetterHeaderKeys(Section):
    """Header fields of a request that failed for good."""

    belongs_to = "dead_letter.headers"

    drop: list[Annotated[str, HeaderName()]] = _key(
        "Fields that are not written to disk, besides Proxy-Authorization, which never is; a "
        "replay is given them anew.",
        ["Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key"],
    )


class DeadLetterKeys(Section):
    """Which requests that failed for good are kept, for a person to look at and send again."""

    belongs_to = "dead_letter"

    methods: Annotated[list[Annotated[str, Method()]], MinLen(1)] = _key(
        "Requests of these methods are kept.", ["POST", "PUT", "PATCH", "DELETE"]
    )
    max_body: Annotated[int, Size()] = _key(
        "Largest body that is kept, within the route's buffer; of a larger one the rest is kept, "
        "and cannot be sent again.",
        "1MiB",
    )
    on: Annotated[_LetterOutcomes | None, MinLen(1)] = _key(
        "After which responses, in the words of retry.on; refusals: what Holdfast refused itself. "
        "A request that failed without a response is kept in any case. Default, and what default "
        "stands for: the route's retry.on, or the built-in list.",
        None,
    )
    ttl: Annotated[float, Duration(zero=_NO_LETTER)] = _key(
        "How long a letter is kept; then it is deleted, and counted.", "7d"
    )
    headers: LetterHeaderKeys = _key("Header fields that are kept or not.", {})


class PolicyKeys(Section):
    """What a route does with its requests. The same keys in defaults, policies and routes."""

    belongs_to = "a route, a policy or defaults"

    strip_prefix: Annotated[str | None, PathPrefix()] = _key(
        "Taken off the path before the request is sent on.", None
    )
    timeout: Annotated[float | None, Duration(zero=_NO_REQUEST, none=True)] = _key(
        "For the whole exchange up to the response's head, without the time that we wait for the "
        "client's own bytes; then 504.",
        "30s",
    )
    idle_timeout: Annotated[float | None, Duration(zero=_NO_BODY, none=True)] = _key(
        "Longest silence of a body, either way.", "5m"
    )
    max_body: Annotated[int | None, Size(none=True)] = _key(
        "Largest request body; beyond it 413.", "none"
    )
    buffer: Annotated[int, Size()] = _key(
        "Request bodies up to this size are kept for another attempt; larger ones are sent once.",
        "1MiB",
    )
    upgrades: list[Annotated[str, Protocol()]] = _key(
        "Protocols that a client may switch to, tunnelled as they are; [] for none.", ["websocket"]
    )
    headers: HeadersKeys = _key("Header fields to set and remove.", {})
    retry: Annotated[
        RetryKeys | Literal[False], Switchable(), SetsKey("attempts", Attempts(), named=True)
    ] = _key("Sends a request again that failed, where that is safe.", default=False)
    throttle: Throttle = _key(
        "Limits the calls of this route; those beyond wait, or get 429.", default=False
    )
    idempotency: Annotated[IdempotencyKeys | Literal[False], Switchable()] = _key(
        "Runs a request with a key once; duplicates get the first result.", default=False
    )
    fallback: Annotated[FallbackKeys | Literal[False], Switchable()] = _key(
        "What the client gets in place of a failure.", default=False
    )
    dead_letter: Annotated[DeadLetterKeys | Literal[False], Switchable()] = _key(
        "Keeps a request that failed for good on disk, for a person to send it again.",
        default=False,
    )


class RouteKeys(PolicyKeys):
    """Which requests go where."""

    belongs_to = "a route"

    name: Annotated[str, Name()] = _key("For metrics, logs and messages. Default: its path.", None)
    match: Annotated[MatchKeys, MethodAndPath()] = _key(
        "/v1/**, or POST /v1/charges, or a mapping."
    )
    upstream: Annotated[str, Name()] = _key("The name of an upstream.")
    policy: Annotated[list[Annotated[str, Name()]], OneOrMore()] = _key(
        "The name of a policy, or a list of them: later ones win, the route itself over all.", []
    )


class StoreKeys(Section):
    """Where limits are counted and idempotency keys are kept."""

    belongs_to = "store"

    url: Annotated[RedisUrl | SqliteFile | None, StoreUrl()] = _key(
        "memory (of this process), sqlite:PATH (a file for idempotency keys; limits are counted in "
        "memory), or redis://user:password@host:port/database, rediss:// for TLS."
    )
    username: Annotated[str | None, Username()] = _key("In place of the URL's.", None)
    password: Annotated[str | None, Password()] = _key("In place of the URL's.", None)
    prefix: Annotated[str, KeyPrefix()] = _key(
        "What the names of all keys in it begin with. Instances with the same one share limits and "
        "idempotency keys.",
        "holdfast",
    )
    timeout: Annotated[
        float,
        Duration(
            zero="leaves no time for any answer, write 200ms (say)",
            longest=10.0,
            units=("ms",),
            example="200ms",
        ),
    ] = _key("How long it may take to answer, before on_store_error decides.", "200ms")
    permit_life: Annotated[
        float | None,
        DurationOrAuto(
            Duration(
                zero="leaves no time to use what redis gave, write auto or 100ms (say)",
                least=0.01,
                longest=1.0,
                units=("ms",),
                example="auto, or 100ms",
            )
        ),
    ] = _key(
        "How long a call that redis let through may be kept before it is sent; twice the time to "
        "redis, at least. auto: a 40th of the rate's time, 10ms to 100ms. The longer, the less of "
        "the rate is used.",
        "auto",
    )
    tls: UpstreamTlsKeys = _key("For rediss URLs.", {})
    entries: Annotated[
        int, Integer(least=1, most=100_000_000, zero="would keep nothing, write 100000 (say)")
    ] = _key("Most idempotency keys in memory.", 100_000)
    bytes: Annotated[int, Size(least=1024)] = _key(
        "Most memory for them and their results.", "64MiB"
    )


class FileKeys(Section):
    """The configuration of Holdfast."""

    belongs_to = "the top of the file"

    name: Annotated[str, Pseudonym()] = _key(
        "What this proxy is called in Via and Proxy-Status. Two in a row need two names, or the "
        "second takes it for a loop (508).",
        "holdfast",
    )
    listen: Annotated[
        list[Annotated[ListenOn, SetsKey("address", ListenAddress())]], MinLen(1), OneOrMore()
    ] = _key("Address or list of addresses to accept connections on.", "127.0.0.1:8080")
    admin: Annotated[Listen | None, AdminAddress()] = _key(
        "Address of the admin listener (health, metrics, status, reload); false for none.",
        "127.0.0.1:9901",
    )
    admin_token: Annotated[str | None, Token()] = _key(
        "Asked for as a bearer token by the admin listener, except for /healthz, /readyz and "
        "/metrics. Needed unless admin is on a loopback address.",
        None,
    )
    workers: Annotated[int | None, WorkerCount()] = _key(
        "Processes that serve: 1, a number, or auto for one per core. Several need a store that "
        "they can share, redis for limits, redis or sqlite for idempotency keys.",
        1,
    )
    drain_timeout: Annotated[float, Duration()] = _key(
        "How long requests under way may go on after SIGTERM.", "30s"
    )
    drain_delay: Annotated[float, Duration()] = _key(
        "How long readiness fails before the listeners close.", "0s"
    )
    access_log: Annotated[str, Choice("notable", "all", "none")] = _key(
        "What to log: notable (refused, failed, repeated or fallen back), all or none.",
        "notable",
    )
    trusted_proxies: list[Annotated[IPv4Network | IPv6Network | str, TrustedPeer()]] = _key(
        "Peers whose X-Forwarded-* and Forwarded are believed: networks, addresses, unix.", []
    )
    limits: LimitKeys = _key("What clients may cost.", {})
    upstreams: dict[
        Annotated[str, Name()],
        Annotated[UpstreamKeys, SetsKey("urls", UpstreamUrl(), listed=True)],
    ] = _key("Services by name: a URL, or a mapping.", {})
    defaults: PolicyKeys = _key("What every route does unless it says otherwise.", {})
    policies: dict[Annotated[str, Name()], PolicyKeys] = _key(
        "The same, by name, for the routes that ask for it.", {}
    )
    routes: list[RouteKeys] = _key("The first that matches takes the request; none: 404.", [])
    # Last, so that a stray `timeout` is said to belong to a route rather than here.
    store: Annotated[StoreKeys, SetsKey("url", StoreUrl())] = _key(
        "Where limits are counted and idempotency keys are kept: memory; sqlite:PATH for keys that "
        "outlive the process; redis://… for all instances together; or a mapping.",
        "memory",
    )
    state_dir: Annotated[str, FolderPath()] = _key(
        "Folder of the dead letters, made when a route keeps some; the environment variable "
        "HOLDFAST_STATE_DIR goes before it.",
        "./state",
    )
