"""Holdfast: bare, with one policy, with all of them, with each store.

Every attire is ``holdfast.yaml`` and a file over it, as ``-c`` twice does it.
"""

import sys
from collections.abc import Callable, Mapping

import yaml

from bench.processes import free_port
from bench.proxies.place import ATTEMPTS, HERE, PLENTY, Command, Place, Proxy

Keys = Mapping[str, object]

RETRY = {"attempts": ATTEMPTS, "backoff": {"base": "1ms", "max": "10ms"}}
THROTTLE = f"{PLENTY}/s"
POLICIES = {"retry": RETRY, "throttle": THROTTLE}
"""What every peer does as well."""

# Room for all keys of a run: what it costs to forget some before their time is another question.
MEMORY = {"url": "memory", "entries": 1_000_000, "bytes": "1GiB"}


def _command(place: Place, over: Keys) -> Command:
    file = place.file("holdfast.yaml")
    file.write_text(yaml.safe_dump(dict(over)))
    scheme = "https" if place.upstream == "tls" else "http"
    environment = {
        "BENCH_PORT": str(place.port),
        "BENCH_ADMIN": str(free_port()),
        "BENCH_UPSTREAM": f"{scheme}://127.0.0.1:{place.upstream_port}",
    }
    files = ("-c", str(HERE / "holdfast.yaml"), "-c", str(file))
    return [sys.executable, "-m", "proxy", "run", *files], environment


def _with(**over: object) -> Callable[[Place], Command]:
    """Holdfast with other keys besides."""
    return lambda place: _command(place, over)


def _with_tls(place: Place) -> Command:
    upstream = {"tls": {"ca": str(place.stage.ca)}}
    return _command(place, {"defaults": POLICIES, "upstreams": {"upstream": upstream}})


def _with_redis(**over: object) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        # Proxies may share the server, but not what is in it.
        store = {"url": _redis(place), "prefix": f"bench-{place.port}"}
        return _command(place, {"store": store, **over})

    return command


def _redis(place: Place) -> str:
    store = place.stage.store
    return f"redis://127.0.0.1:{store.port if store else 0}"


def _with_sqlite(place: Place) -> Command:
    keys = {"store": f"sqlite:{place.file('keys.db')}"}
    return _command(place, {**keys, "defaults": {**POLICIES, "idempotency": True}})


def _with_everything(place: Place) -> Command:
    """Every policy that there is, and none that has to act."""
    defaults = {
        **POLICIES,
        "idempotency": True,
        "dead_letter": True,
        "fallback": {"status": 503, "body": "later"},
    }
    upstream = {"breaker": True, "throttle": THROTTLE}
    state = place.file("state")
    return _command(
        place,
        {
            "store": MEMORY,
            "state_dir": str(state),
            "defaults": defaults,
            "upstreams": {"upstream": upstream},
        },
    )


def _with_routes(count: int) -> Callable[[Place], Command]:
    """Holdfast with *count* routes, the last of which is the one that matches."""
    names = [*(f"service-{number}" for number in range(count - 1)), "service-last"]
    routes = [{"name": name, "match": f"/{name}/**", "upstream": "upstream"} for name in names]
    return _with(routes=routes, defaults=POLICIES)


LAST_ROUTE = "/service-last/items"

PROXIES = (
    Proxy("holdfast", _with()),
    Proxy("holdfast-retry", _with(defaults={"retry": RETRY})),
    Proxy("holdfast-throttle", _with(defaults={"throttle": THROTTLE})),
    Proxy("holdfast-policies", _with(defaults=POLICIES)),
    Proxy("holdfast-everything", _with_everything),
    Proxy("holdfast-tls", _with_tls),
    Proxy("holdfast-keys", _with(store=MEMORY, defaults={**POLICIES, "idempotency": True})),
    Proxy("holdfast-keys-sqlite", _with_sqlite),
    Proxy(
        "holdfast-keys-redis",
        # No throttle, which Redis would hold as well: what it spends here is for keys alone.
        _with_redis(defaults={"retry": RETRY, "idempotency": True}),
        uses_store=True,
    ),
    Proxy("holdfast-redis", _with_redis(defaults=POLICIES), uses_store=True),
    # Workers are for more cores than one: pinned to one, they would only take turns.
    Proxy(
        "holdfast-1-worker",
        _with_redis(defaults=POLICIES),
        uses_store=True,
        is_pinned=False,
    ),
    Proxy(
        "holdfast-2-workers",
        _with_redis(defaults=POLICIES, workers=2),
        uses_store=True,
        is_pinned=False,
        workers=2,
    ),
    Proxy("holdfast-10-routes", _with_routes(10), path=LAST_ROUTE),
    Proxy("holdfast-1000-routes", _with_routes(1000), path=LAST_ROUTE),
)
