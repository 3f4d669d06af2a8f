"""The proxies to measure, by name: Holdfast in several attires, and its peers.

Each peer has one route, a retry policy and a rate limit that is never reached, keeps its
connections to the upstream, and has one core: the same work as ``holdfast-policies``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench import tools
from bench.processes import Running, free_port, running, serves
from bench.proxies import caddy, envoy, haproxy, holdfast, nginx, traefik
from bench.proxies.place import Place, Proxy
from bench.stage import Stage, Upstream

PROXIES: dict[str, Proxy] = {
    proxy.name: proxy
    for proxy in (
        *holdfast.PROXIES,
        *envoy.PROXIES,
        nginx.PROXY,
        haproxy.PROXY,
        traefik.PROXY,
        caddy.PROXY,
    )
}

VERSIONS: dict[str, Callable[[], str]] = {
    "envoy": envoy.version,
    "nginx": nginx.version,
    "haproxy": haproxy.version,
    "traefik": traefik.version,
    "caddy": caddy.version,
}
"""Whoever is not installed raises :class:`bench.tools.Missing`."""


@contextmanager
def started(proxy: Proxy, stage: Stage, upstream: Upstream) -> Iterator[Running]:
    """The proxy, from ready to ended."""
    if proxy.uses_store and stage.store is None:
        raise tools.Missing(f"{proxy.name} needs a Redis: redis-server is not installed")
    place = Place(free_port(), upstream, stage)
    command, environment = proxy.command(place)
    core, _ = tools.cores()
    with running(
        proxy.name,
        place.port,
        tools.pinned(core, *command) if proxy.is_pinned else command,
        stage.folder,
        environment=environment,
        ready=serves(proxy.path),
        store=stage.store if proxy.uses_store else None,
        workers=proxy.workers,
    ) as process:
        yield process
