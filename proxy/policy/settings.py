"""The configuration once it has been read: small immutable values.

``config/`` makes these from YAML and reports what is wrong with positions;
everything else only reads them. Times are in seconds, sizes in bytes, ``None``
is "no limit". Two values that compare equal behave alike, which is how a reload
knows what it may keep.
"""

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from proxy.http.header_edits import NO_EDITS, HeaderEdits


@dataclass(frozen=True, slots=True)
class ListenTls:
    """Certificate and key (PEM files) of a listener."""

    cert: str
    key: str


@dataclass(frozen=True, slots=True)
class Listen:
    """One address to accept connections on: host and port, or a unix path."""

    host: str = ""
    port: int = 0
    path: str = ""
    tls: ListenTls | None = None

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may cost us."""

    header_bytes: int = 64 * 1024
    header_timeout: float = 10.0
    body_rate: int | None = 500
    """Bytes per second that a request body must bring while it is waited for; None: any."""
    keepalive: float = 75.0
    connections: int = 20_000
    replay_memory: int = 256 * 1024**2
    """Bytes of request bodies that are kept for another attempt, of all clients together."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One URL of an upstream, taken apart."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    base_path: str = ""
    """Put before the path of each request; never ends in a slash."""

    @property
    def authority(self) -> str:
        """What goes into Host: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.scheme == "https" else 80
        return host if self.port == default else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base_path}"


@dataclass(frozen=True, slots=True)
class UpstreamTls:
    """How to trust a TLS server that we talk to, and how to show it who we are."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What this process keeps for itself, and how much of it."""

    entries: int = 100_000
    """Most idempotency keys."""
    bytes: int = 64 * 1024**2
    """Most bytes that they and their results take."""


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """A file in which idempotency keys outlive the process. Limits are kept in memory."""

    path: str
    timeout: float = 0.2
    """Seconds in which it must answer."""
    bytes: int = 1024**3
    """Most bytes that the results of keys take."""


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where the state is that all instances share."""

    host: str
    port: int = 6379
    database: int = 0
    username: str | None = None
    password: str | None = field(repr=False, default=None)
    tls: UpstreamTls | None = None
    """None: in clear."""
    prefix: str = "holdfast"
    """What the names of all its keys begin with."""
    timeout: float = 0.2
    """Seconds in which it must answer."""
    permit_life: float | None = None
    """Seconds for which a leased permit of a rate may be used; None: what suits the rate."""


StoreSettings = MemorySettings | SqliteSettings | RedisSettings


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """How many retries an upstream is asked to bear."""

    ratio: float = 0.2
    """Retries per first attempt."""
    min_per_second: float = 1.0
    """Retries that are allowed whatever the traffic."""
    window: float = 10.0


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When an address is left alone for a while."""

    failure_ratio: float = 0.5
    min_requests: int = 20
    """Fewer than this in the window say nothing."""
    window: float = 10.0
    open_for: float = 30.0
    probes: int = 3
    """Successes in a row that close it again; also how many are tried at once."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many calls in so many seconds: ``100/s``, ``10/500ms``."""

    count: int
    period: float


@dataclass(frozen=True, slots=True)
class ThrottleKey:
    """What tells the callers of a throttle apart."""

    source: str
    """``client_ip``, ``header`` or ``query``."""
    name: str = ""
    """Of the header, in lower case, or of the query parameter."""


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """How many calls a route or an upstream lets through, and who waits for how long."""

    rates: tuple[Rate, ...] = ()
    """All of them hold; none: as many as come."""
    burst: int | None = None
    """Calls that may go out together, beyond the rate's count; None: nothing beyond it."""
    algorithm: str = "gcra"
    """``gcra`` (smooth) or ``window`` (as soon as the rate's count allows)."""
    concurrency: int | None = None
    max_wait: float | None = 5.0
    max_queue: int = 1000
    key: ThrottleKey | None = None
    max_keys: int = 10_000
    longest_pause: float | None = 60.0
    """How long a refused response with a hint may close a bucket; None: not at all."""
    on_store_error: str = "local"
    """``local``, ``open`` or ``closed``."""
    margin: float | None = None
    """Seconds by which the time from sending to arrival may vary; None: what suits the rate."""


@dataclass(frozen=True, slots=True)
class HonouredKey:
    """What an upstream promises about a request that it gets twice with the same key."""

    header: str = "idempotency-key"
    """In lower case."""
    remembered_for: float = 86_400.0
    """Seconds for which it knows a key again."""
    is_shared: bool = False
    """Whether all of its URLs know a key that one of them got."""


USUAL_REFUSALS = (421, 425, 429)
"""Statuses by which an upstream says that it did not do the work, unless it has its own."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One entry of ``upstreams``."""

    name: str
    origins: tuple[Origin, ...]
    balance: str = "round_robin"
    """``round_robin`` or ``first``."""
    connect_timeout: float = 5.0
    idle_connections: int = 64
    max_connections: int = 1024
    keepalive: float = 30.0
    preserve_host: bool = False
    tls: UpstreamTls = UpstreamTls()
    honours_key: HonouredKey | None = None
    """How it knows a request again, and runs it once; None: it promises nothing."""
    refused: frozenset[int] = frozenset(USUAL_REFUSALS)
    """Statuses by which it says that it did not do the work."""
    budget: BudgetSettings | None = BudgetSettings()
    breaker: BreakerSettings | None = None
    throttle: ThrottleSettings | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """What a request must look like; an empty tuple allows anything."""

    paths: tuple[str, ...] = ("/**",)
    methods: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """In lower case, without port; ``*.`` in front stands for every name below."""
    headers: tuple[tuple[str, str], ...] = ()
    """Name in lower case, value; a final ``*`` in the value stands for any rest."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A list such as ``on: [connect, 503, 5xx, 403+hint]``, sorted for look-up."""

    words: frozenset[str]
    """Kinds (connect, refused, reset, timeout, protocol); for a fallback also breaker_open, and
    for dead letters :data:`REFUSALS`."""
    statuses: frozenset[int] = frozenset()
    """Classes are spelled out."""
    hinted: frozenset[int] = frozenset()
    """Statuses that count only if the response says when to come back."""


USUAL_KINDS = ("connect", "refused", "reset", "timeout")
USUAL_STATUSES = (408, 502, 503, 504)
USUAL_OUTCOMES = Outcomes(frozenset(USUAL_KINDS), frozenset(USUAL_STATUSES))
"""What ``default`` stands for in a list of outcomes."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a retry that nobody told us to wait for."""

    strategy: str = "exponential"
    """``exponential``, ``linear``, ``constant`` or ``fibonacci``."""
    base: float = 0.1
    factor: float = 2.0
    """For exponential."""
    increment: float | None = None
    """For linear; None: the base."""
    max: float = 30.0
    jitter: str | float = "full"
    """``full``, ``equal``, ``decorrelated``, ``none``, or the share by which it may vary."""


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """When a request is sent again, and how soon."""

    attempts: int = 3
    """In total, the first included."""
    on: Outcomes = USUAL_OUTCOMES
    unsafe: str = "auto"
    """``auto``, ``never`` or ``always``."""
    attempt_timeout: float | None = None
    backoff: Backoff = Backoff()
    longest_hint: float | None = 60.0
    """The longest wait that an upstream may ask for; None: it is not listened to."""


NEVER_KEPT_BY_CLASS = frozenset({304, 401, 403, 407, 408, 409, 421, 425, 429})
"""Statuses that a class such as ``4xx`` leaves out where it says what is kept under a key.

They tell of the moment, of the caller or of a request that did not run, not of a result."""

USUAL_KEPT = frozenset(range(200, 500)) - NEVER_KEPT_BY_CLASS


@dataclass(frozen=True, slots=True)
class IdempotencySettings:
    """What makes two requests the same, and what a duplicate gets."""

    header: str = "idempotency-key"
    """In lower case."""
    methods: frozenset[str] = frozenset({"POST", "PATCH"})
    required: bool = False
    ttl: float = 86_400.0
    scope: tuple[str, ...] = ("authorization", "x-api-key")
    """Header fields that tell callers apart, in lower case."""
    scope_required: bool = False
    in_flight: str = "wait"
    """``wait`` or ``reject``."""
    mismatch_status: int = 422
    keep: frozenset[int] = USUAL_KEPT
    """Statuses whose response is kept; classes are spelled out."""
    on_ambiguous: str = "release"
    """``release`` or ``hold``."""
    lease: float = 30.0
    max_response: int = 1024**2
    on_store_error: str = "closed"
    """``closed`` or ``open``."""


@dataclass(frozen=True, slots=True)
class FallbackSettings:
    """What the client gets instead of a failure: a fixed answer, or another upstream's."""

    on: Outcomes
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: str = ""
    upstream: str = ""
    """Its name; empty: the fixed answer."""


REFUSALS = "refusals"
"""In the list of a route's dead letters: what Holdfast refused itself is kept, too."""

ALWAYS_DROPPED = frozenset({"proxy-authorization"})
"""Header fields that no letter keeps, whatever the file says: they are between two hops."""


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """Which requests that failed for good are kept, for how long, and without what."""

    methods: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
    max_body: int = 1024**2
    """A larger body is left out, and the letter cannot be sent again."""
    ttl: float = 604_800.0
    on: Outcomes = USUAL_OUTCOMES
    """Statuses after which a request is kept, and, with the word :data:`REFUSALS`, whether what we
    refused ourselves is. What ended without a response is kept in any case."""
    drop: frozenset[str] = frozenset({"authorization", "cookie", "x-api-key"}) | ALWAYS_DROPPED
    """Header fields that are not kept, in lower case."""


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """One entry of ``routes`` with its policies merged in."""

    name: str
    match: Match
    upstream: str
    strip_prefix: str = ""
    timeout: float | None = 30.0
    idle_timeout: float | None = 300.0
    max_body: int | None = None
    buffer: int = 1024**2
    """Request bodies up to this size are kept for another attempt."""
    upgrades: tuple[str, ...] = ("websocket",)
    request_headers: HeaderEdits = NO_EDITS
    response_headers: HeaderEdits = NO_EDITS
    retry: RetrySettings | None = None
    throttle: ThrottleSettings | None = None
    idempotency: IdempotencySettings | None = None
    fallback: FallbackSettings | None = None
    dead_letter: DeadLetterSettings | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file."""

    listen: tuple[Listen, ...]
    admin: Listen | None
    name: str = "holdfast"
    """Who we are in Via and Proxy-Status."""
    admin_token: str | None = field(repr=False, default=None)
    workers: int | None = 1
    """How many processes serve; None: one per core."""
    drain_timeout: float = 30.0
    drain_delay: float = 0.0
    access_log: str = "notable"
    """``notable``, ``all`` or ``none``."""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    trust_unix: bool = False
    """Whether peers on a unix socket are believed too (``unix`` in trusted_proxies)."""
    limits: Limits = Limits()
    store: StoreSettings = MemorySettings()
    state_dir: str = "state"
    """The folder of the dead letters."""
    upstreams: tuple[UpstreamSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
