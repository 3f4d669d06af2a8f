"""What a request may leave behind once it is over: nothing."""

import gc

from proxy.upstream.call import Call
from tests.support.proxies import RunningProxy
from tests.support.waiting import eventually


def leftovers(proxy: RunningProxy) -> dict[str, int]:
    """What is kept for requests now, by name; empty if nothing is."""
    app = proxy.app
    throttles = app._generation.throttles.values()
    limiters = [limiter for throttle in throttles for limiter in throttle._limiters()]
    routes: dict[str, dict[str, int]] = proxy.status()["routes"]  # type: ignore[assignment]  # JSON
    kept = {
        "requests in flight": sum(route["in_flight"] for route in routes.values()),
        "upstream connections in use": (
            proxy.open_upstream_connections - proxy.idle_upstream_connections
        ),
        "waits": len(app._retry_waits),
        "requests in the queue": sum(limiter.queue.waiting for limiter in limiters),
        "slots in throttles": sum(limiter.queue.under_way for limiter in limiters),
        "permits reserved": sum(limiter.queue.reserved for limiter in limiters),
        "deadlines": sum(deadlines.watched for deadlines in app._generation.deadlines.values()),
        "bytes kept for another attempt": app._listener.server.replay_memory.used,
        "keys in flight": len(app._in_flight_keys),
        "requests that wait for a key": app._in_flight_keys.waiting,
        "tasks that see to keys": len(app._in_flight_keys._tasks),
        "dead letters being sent again": len(app._replays),
    }
    return {name: count for name, count in kept.items() if count}


async def nothing_left(proxy: RunningProxy, *, clients: int | None = None) -> None:
    """Wait until nothing is held for any request, and only *clients* are connected."""

    def is_clean() -> bool:
        return not leftovers(proxy) and clients in {None, proxy.client_connections}

    try:
        await eventually(is_clean)
    except AssertionError:
        raise AssertionError(
            f"left: {leftovers(proxy)}, {proxy.client_connections} clients"
        ) from None


def is_discarding() -> bool:
    """Whether a call reads the rest of a response that was given up."""
    calls = [found for found in gc.get_objects() if type(found) is Call]
    return any(call._discard_timer is not None and not call.is_over for call in calls)
