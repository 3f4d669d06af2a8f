"""What is measured: a table of cases, those with a bar first.

The subject is ``holdfast-policies``: match, retry, throttle and metrics, as every peer has
them.
"""

from bench.case import Case, Contender
from bench.loads import Load
from bench.loads.closed import ClosedLoop
from bench.loads.idle import Idle
from bench.loads.paced import Paced
from bench.loads.startup import Startup
from bench.loads.transfer import Stall, Transfer
from bench.processes import MIB
from bench.proxies.holdfast import LAST_ROUTE
from bench.stage import Upstream

SUBJECT = "holdfast-policies"
TWIN = "holdfast-policies:twin"
"""Another instance of the same: how far its figures differ is the noise of all others."""
ENVOY = "envoy-policies"
PEERS = (ENVOY, "nginx", "haproxy", "traefik", "caddy")


def _beside_peers(
    name: str,
    title: str,
    load: Load,
    *metrics: str,
    upstream: Upstream = "nginx",
    twin: bool = True,
    fresh: bool = False,
    rounds: int | None = None,
) -> Case:
    """The subject against each peer, and against itself."""
    others = (*((TWIN,) if twin else ()), *PEERS)
    contenders = (SUBJECT, *others)
    return Case(
        name,
        title,
        tuple(Contender(one, one.removesuffix(":twin"), load) for one in contenders),
        tuple((SUBJECT, other) for other in others),
        metrics,
        upstream,
        fresh,
        rounds,
    )


def _against(
    name: str,
    title: str,
    load: Load,
    base: str,
    *proxies: str,
    metrics: tuple[str, ...] = ("cpu", "p50", "per_second"),
) -> Case:
    """Each of *proxies* over *base*."""
    contenders = tuple(Contender(one, one, load) for one in (base, *proxies))
    return Case(name, title, contenders, tuple((proxy, base) for proxy in proxies), metrics)


def _over_tls(name: str, title: str, load: Load, *metrics: str) -> Case:
    """Holdfast over Envoy, with an upstream over TLS behind both."""
    pair = ("holdfast-tls", "envoy-tls")
    contenders = tuple(Contender(one, one, load) for one in pair)
    return Case(name, f"{title}, TLS upstream", contenders, (pair,), metrics, upstream="tls")


def _keyed(name: str, title: str, proxy: str) -> Case:
    """A POST with a new key each over one without, at the same proxy."""
    return Case(
        name,
        title,
        (
            Contender("plain", proxy, ClosedLoop(post_bytes=1024)),
            Contender("keyed", proxy, ClosedLoop(post_bytes=1024, keyed=True)),
        ),
        (("keyed", "plain"),),
        ("cpu", "p50", "p99", "per_second", "store_cpu"),
    )


_CLOSED = ("cpu", "p50", "p99", "per_second", "rss")
_GET = ClosedLoop()
_POST = ClosedLoop(post_bytes=1024)
_LARGE = ClosedLoop(connections=8, path="/1MiB", body_bytes=MIB)
_SINGLE = ClosedLoop(connections=1)

CASES = (
    # Those with a bar.
    _beside_peers("get", "small GET, 64 connections", _GET, *_CLOSED),
    _beside_peers("post", "POST of 1 KiB, 64 connections", _POST, *_CLOSED),
    _beside_peers("large", "1 MiB response, 8 connections", _LARGE, "cpu", "cpu_mib", "per_second"),
    _beside_peers("single", "small GET, one caller", _SINGLE, "p50", "p99", "cpu"),
    _keyed("keyed-memory", "POST of 1 KiB with a new key each, in memory", "holdfast-keys"),
    _against(
        "workers",
        "small GET, two workers against one",
        # A supervisor deals out connections: that is paid for each of them, not for requests.
        ClosedLoop(stretch=4),
        "holdfast-1-worker",
        "holdfast-2-workers",
        metrics=("cpu", "share", "per_second"),
    ),
    _over_tls("tls-get", "small GET", _GET, *_CLOSED),
    _over_tls("tls-post", "POST of 1 KiB", _POST, *_CLOSED),
    _over_tls("tls-large", "1 MiB response", _LARGE, "cpu", "cpu_mib", "per_second"),
    _over_tls("tls-single", "small GET, one caller", _SINGLE, "p50", "p99", "cpu"),
    _beside_peers(
        "start",
        "start to first answer",
        Startup(),
        "seconds",
        "rss",
        twin=False,
        fresh=True,
        rounds=5,
    ),
    _beside_peers(
        "idle", "idle connections", Idle(), "kib_each", "rss", twin=False, fresh=True, rounds=3
    ),
    Case(
        "stall",
        "a large body past one who stalls, both ways",
        (Contender(SUBJECT, SUBJECT, Stall()),),
        (),
        ("above_idle",),
        upstream="bodies",
        fresh=True,
        rounds=1,
    ),
    # The rest of what is told of the subject and its peers.
    _beside_peers(
        "half",
        "small GET at half load",
        Paced(part=0.5),
        "p50",
        "p99",
        "cpu",
        "rate",
        "late",
        "late_p99",
    ),
    _beside_peers(
        "failing",
        "small GET, one upstream answer in ten is a 503, retries on",
        ClosedLoop(path="/failing", may_fail=0.01),
        *_CLOSED[:-1],
        twin=False,
    ),
    _beside_peers(
        "huge-response",
        "100 MiB response",
        Transfer("down", "/100MiB", 100),
        "cpu_mib",
        "mib_per_second",
        twin=False,
    ),
    # What each policy costs.
    _against(
        "policies-get",
        "small GET, policies on against none",
        _GET,
        "holdfast",
        "holdfast-retry",
        "holdfast-throttle",
        SUBJECT,
        "holdfast-everything",
    ),
    _against(
        "policies-post",
        "POST of 1 KiB, policies on against none",
        _POST,
        "holdfast",
        "holdfast-retry",
        "holdfast-throttle",
        SUBJECT,
        "holdfast-everything",
    ),
    _against("bare", "small GET, no policy on either side", _GET, "envoy", "holdfast"),
    _keyed("keyed-sqlite", "POST of 1 KiB with a new key each, in sqlite", "holdfast-keys-sqlite"),
    _keyed("keyed-redis", "POST of 1 KiB with a new key each, in Redis", "holdfast-keys-redis"),
    _against(
        "redis",
        "small GET, a throttle in Redis against one in memory",
        _GET,
        SUBJECT,
        "holdfast-redis",
        metrics=("cpu", "p50", "per_second", "store_cpu"),
    ),
    _against(
        "redis-paced",
        "the same at some 5,000 a second",
        ClosedLoop(pause=12),
        SUBJECT,
        "holdfast-redis",
        metrics=("cpu", "p50", "per_second", "store_cpu"),
    ),
    Case(
        "routes",
        "small GET, the last of 1,000 routes",
        tuple(
            Contender(name, name, ClosedLoop(path=LAST_ROUTE))
            for name in ("holdfast-10-routes", "holdfast-1000-routes", "envoy-1000-routes")
        ),
        (
            ("holdfast-1000-routes", "holdfast-10-routes"),
            ("holdfast-1000-routes", "envoy-1000-routes"),
        ),
        ("cpu", "p50", "per_second"),
    ),
    # The rest, with an upstream of another kind.
    _beside_peers(
        "upload",
        "1 MiB upload, 8 connections",
        ClosedLoop(connections=8, post_bytes=MIB, body_bytes=MIB),
        "cpu_mib",
        "per_second",
        upstream="bodies",
        twin=False,
    ),
    _beside_peers(
        "huge-upload",
        "100 MiB upload",
        Transfer("up", "/", 100),
        "cpu_mib",
        "mib_per_second",
        upstream="bodies",
        twin=False,
    ),
)
