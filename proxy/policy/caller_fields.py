"""Header fields and query parameters that tell callers apart: a request may send each only once.

A throttle's key, the scope of idempotency keys and an exact condition of ``match`` go by the
value of a field. If a request had two of them, the proxy and the upstream could each go by
another one, and a caller would get another rate limit, another name-space or another route by
adding a line. Such a request is refused.

``http/fields.py`` says how values compare: byte for byte, but for the scheme of a credential.
"""

from collections.abc import Iterable

from proxy.http.fields import PROTECTED, RawHeaders
from proxy.http.hop import Hop
from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.settings import (
    CallerSource,
    Match,
    RouteSettings,
    Settings,
    ThrottleKey,
    UpstreamSettings,
)
from proxy.policy.throttle.caller_key import count_of_parameter

LIST_FIELDS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "baggage",
        "cache-control",
        "connection",
        "content-encoding",
        "content-language",
        "expect",
        "forwarded",
        "if-match",
        "if-none-match",
        "link",
        "pragma",
        "prefer",
        "te",
        "trailer",
        "transfer-encoding",
        "tracestate",
        "upgrade",
        "via",
        "warning",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    }
)
"""Fields that senders and proxies may properly spread over several lines (RFC 9110 5.3)."""


def display_name(name: str) -> str:
    """Return the usual spelling of a field's name: ``X-Api-Key`` for ``x-api-key``."""
    return "-".join(word.capitalize() for word in name.split("-"))


def repeated_field(name: str) -> Refusal:
    """Return the refusal of a request that has the field *name* more than once."""
    return Refusal(
        RefusalReason.BAD_REQUEST,
        f"Send one {display_name(name)} field, not several: this route goes by its value.",
    )


class SingleFields:
    """Checks that a request does not repeat a field or parameter whose value its route goes by.

    ``X_Api_Key`` beside ``X-Api-Key`` is a repetition as well: to CGI-style servers they are one.
    """

    def __init__(self, names: Iterable[str], parameters: Iterable[str]) -> None:
        """Check header fields *names*, in lower case, and query *parameters*."""
        self._names = frozenset(name.encode().replace(b"_", b"-") for name in names)
        self._parameters = tuple(dict.fromkeys(parameters))

    def refusal(self, headers: RawHeaders, target: str) -> Refusal | None:
        """Return the refusal that names a repeated field or parameter; None if there is none."""
        names = self._names
        if names:
            seen = set()
            for field, _ in headers:
                name = field.lower().replace(b"_", b"-")
                if name in names:
                    if name in seen:
                        return repeated_field(name.decode())
                    seen.add(name)
        for parameter in self._parameters:
            if count_of_parameter(parameter, target) > 1:
                return Refusal(
                    RefusalReason.BAD_REQUEST,
                    f"Send the query parameter {parameter} once: this route goes by its value.",
                )
        return None


def single_fields(
    route: RouteSettings, upstreams: Iterable[UpstreamSettings]
) -> SingleFields | None:
    """Collect the fields that requests of *route* must not repeat; None if there are none.

    *upstreams* are those that the route may send to. The scope of idempotency keys is read
    only for requests with a key, and checked where it is read.
    """
    throttles = [route.throttle, *(upstream.throttle for upstream in upstreams)]
    keys = [throttle.key for throttle in throttles if throttle is not None]
    names = [*exact_fields(route.match), *_named(keys, CallerSource.HEADER)]
    parameters = _named(keys, CallerSource.QUERY)
    return SingleFields(names, parameters) if names or parameters else None


def exact_fields(match: Match) -> list[str]:
    """Return the header fields for which *match* demands an exact value."""
    return [name for name, value in match.headers if not value.endswith("*")]


def _named(keys: Iterable[ThrottleKey | None], source: CallerSource) -> list[str]:
    return [key.name for key in keys if key is not None and key.source is source]


def hop_for(settings: Settings) -> Hop:
    """Make the hop of a configuration: its name, and the fields that it protects.

    A field that the configuration names is an end-to-end field, whatever Connection lists.
    Otherwise a caller could remove its own idempotency key on the way, say, and have each
    duplicate run.
    """
    throttles = [route.throttle for route in settings.routes]
    throttles += [upstream.throttle for upstream in settings.upstreams]
    keys = [throttle.key for throttle in throttles if throttle is not None]
    names = set(_named(keys, CallerSource.HEADER))
    honoured = [upstream.honours_key for upstream in settings.upstreams]
    names.update(key.header for key in honoured if key is not None)
    for route in settings.routes:
        names.update(name for name, _ in route.match.headers)
        if route.idempotency is not None:
            names.update((route.idempotency.header, *route.idempotency.scope))
    return Hop(settings.name, PROTECTED | {name.encode() for name in names})
