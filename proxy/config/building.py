"""Models → settings: the last step, once nothing is wrong any more."""

from ipaddress import IPv4Network, IPv6Network

from proxy.config import models
from proxy.policy.settings import (
    HeaderEdits,
    Limits,
    Listen,
    ListenTls,
    Match,
    RouteSettings,
    Settings,
    UpstreamSettings,
    UpstreamTls,
)


def settings_from(file: models.FileKeys) -> Settings:
    """The values that the rest of the proxy reads."""
    limits = file.limits
    return Settings(
        listen=tuple(_listen(entry) for entry in file.listen),
        admin=file.admin,
        admin_token=file.admin_token,
        drain_timeout=file.drain_timeout,
        drain_delay=file.drain_delay,
        access_log=file.access_log,
        trusted_proxies=tuple(
            peer for peer in file.trusted_proxies if isinstance(peer, IPv4Network | IPv6Network)
        ),
        trust_unix="unix" in file.trusted_proxies,
        limits=Limits(
            header_bytes=limits.header_bytes,
            header_timeout=limits.header_timeout,
            keepalive=limits.keepalive,
            connections=limits.connections,
        ),
        upstreams=tuple(_upstream(name, upstream) for name, upstream in file.upstreams.items()),
        routes=tuple(_route(route) for route in file.routes),
    )


def _listen(entry: models.ListenOn) -> Listen:
    address = entry.address
    tls = None if entry.tls is None else ListenTls(cert=entry.tls.cert, key=entry.tls.key)
    return Listen(host=address.host, port=address.port, path=address.path, tls=tls)


def _upstream(name: str, upstream: models.UpstreamKeys) -> UpstreamSettings:
    tls = upstream.tls
    return UpstreamSettings(
        name=name,
        origins=tuple(upstream.urls),
        balance=upstream.balance,
        connect_timeout=upstream.connect_timeout,
        idle_connections=upstream.idle_connections,
        max_connections=upstream.max_connections,
        keepalive=upstream.keepalive,
        preserve_host=upstream.host == "preserve",
        tls=UpstreamTls(
            ca=tls.ca,
            cert=tls.cert,
            key=tls.key,
            server_name=tls.server_name,
            verify=tls.verify,
        ),
    )


def _route(route: models.RouteKeys) -> RouteSettings:
    return RouteSettings(
        name=route.name,
        match=_match(route.match),
        upstream=route.upstream,
        strip_prefix=route.strip_prefix or "",
        timeout=route.timeout,
        idle_timeout=route.idle_timeout,
        max_body=route.max_body,
        upgrades=tuple(route.upgrades),
        request_headers=_edits(route.headers.request),
        response_headers=_edits(route.headers.response),
    )


def _match(match: models.MatchKeys) -> Match:
    return Match(
        paths=tuple(match.path),
        methods=tuple(match.methods or ()),
        hosts=tuple(match.host or ()),
        headers=tuple((name.lower(), value) for name, value in match.headers.items()),
    )


def _edits(edits: models.HeaderEditKeys) -> HeaderEdits:
    return HeaderEdits(
        set=tuple(edits.set.items()),
        remove=tuple(name.lower() for name in edits.remove),
    )
