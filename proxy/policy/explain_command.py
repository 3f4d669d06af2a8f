"""How a request that is over is explained: what its verdicts mean, and the ``explain`` of it.

``holdfast explain`` is given what is known of the request: method, path, how its attempts ended,
and of its header fields those that matter. No value that the client sent is among them, but for
its timeout: conditions of the route are met with the route's own values, a key is some key, and a
secret is ``VALUE``. So the arguments can be shown wherever the attempts are.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.policy.attempt import FailureKind
from proxy.policy.caller_fields import display_name
from proxy.policy.reasons import VerdictReason
from proxy.policy.repeatable import MAY_CARRY_KEY
from proxy.policy.settings import HonouredKey, RouteSettings, Settings
from proxy.policy.verdict_meaning import verdict_meaning

AttemptRecord = Mapping[str, object]
"""One attempt, as in the access log."""

_KNOWN_KINDS = frozenset(FailureKind) - {FailureKind.UNKNOWN, FailureKind.CANCELLED}
"""How an attempt can be made to fail by ``--outcome``."""
_is_method = re.compile(r"[A-Z][A-Z0-9_-]*").fullmatch
_SECRET = "VALUE"  # noqa: S105 - it stands for one
_SOME_KEY = "KEY"
_SAID_SO = {
    VerdictReason.SERVER_SAID_NO: "x-should-retry=false",
    VerdictReason.FINAL_ANSWER: "idempotent-replayed=true",
}
"""Verdicts that follow from a field of the response, and that field."""


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """What is known of a request that is over."""

    method: str
    target: str
    route: str
    """The name of its route."""
    attempts: Sequence[AttemptRecord]
    """The attempts of its last run, from the first one on."""
    has_key: bool = False
    """Whether it had an idempotency key, for the proxy or for the upstream."""
    length: int = 0
    """Bytes of its body; negative if that was not known when it came."""
    timeout: float | None = None
    """Seconds that the client granted it."""
    upgrade: bool = False
    """Whether it asked for another protocol."""


@dataclass(frozen=True, slots=True)
class ExplainContext:
    """The configuration that requests are explained by."""

    files: tuple[str, ...]
    """The names of its files, as the process was started with them."""
    settings: Settings
    masked: frozenset[tuple[str, str]] = frozenset()
    """Routes and the fields, in lower case, that they match by a secret value."""

    def meaning(self, attempt: AttemptRecord, *, key_lost: bool = False) -> str | None:
        """Return what the verdict on *attempt* means; None if there is none."""
        reason, status = _verdict(attempt), attempt.get("status")
        if reason is None:
            return None
        refused = {upstream.name: upstream.refused for upstream in self.settings.upstreams}
        return verdict_meaning(
            reason,
            status if isinstance(status, int) else 0,
            refused.get(str(attempt.get("upstream")), frozenset()),
            key_lost=key_lost,
        )

    def upstream_of(self, route: str) -> str:
        """Return the name of the upstream of *route*; empty if there is no such route."""
        found = (each.upstream for each in self.settings.routes if each.name == route)
        return next(found, "")

    def arguments(self, request: EndedRequest) -> list[str]:
        """Return the arguments of ``holdfast explain`` for *request*; empty if it has no such."""
        if not self.files or not _is_method(request.method) or request.target[:1] != "/":
            return []
        given = [part for file in self.files for part in ("-c", file)]
        route = next((each for each in self.settings.routes if each.name == request.route), None)
        if route is None:
            return [*given, request.method, _path(request.target)]
        host = route.match.hosts[0].replace("*", "any") if route.match.hosts else ""
        url = (f"http://{host}" if host else "") + _path(request.target)
        fields = [part for field in self._fields(route, request) for part in ("-H", field)]
        endings = [part for word in _outcomes(route, request) for part in ("--outcome", word)]
        return [*given, request.method, url, *fields, *endings]

    def _fields(self, route: RouteSettings, request: EndedRequest) -> Iterator[str]:
        for name, value in route.match.headers:
            is_shown = (route.name, name) not in self.masked
            yield f"{display_name(name)}: {value.removesuffix('*') if is_shown else _SECRET}"
        matched = {name for name, _ in route.match.headers}
        keys = route.idempotency
        if request.has_key:
            honoured = self._honoured_key(route)
            headers = {keys.header} if keys is not None else {honoured.header}
            headers |= {honoured.header} if request.method in MAY_CARRY_KEY else set()
            for name in sorted(headers - matched):
                yield f"{display_name(name)}: {_SOME_KEY}"
            if keys is not None and keys.scope_required and not matched.intersection(keys.scope):
                yield f"{display_name(keys.scope[0])}: {_SECRET}"
        if request.timeout is not None:
            yield f"Holdfast-Timeout: {max(round(request.timeout * 1000), 1)}ms"
        length = route.buffer + 1 if request.length < 0 else request.length
        if length > min(route.buffer, route.max_body or math.inf):
            # A length that is not known is beyond the buffer if a verdict says so.
            verdicts = [_verdict(attempt) for attempt in request.attempts[-1:]]
            if request.length > 0 or VerdictReason.BODY_TOO_LARGE in verdicts:
                yield f"Content-Length: {length}"
        if request.upgrade and route.upgrades:
            yield "Connection: upgrade"
            yield f"Upgrade: {route.upgrades[0]}"

    def _honoured_key(self, route: RouteSettings) -> HonouredKey:
        for upstream in self.settings.upstreams:
            if upstream.name == route.upstream and upstream.honours_key is not None:
                return upstream.honours_key
        return HonouredKey()


def key_fields(settings: Settings) -> frozenset[bytes]:
    """Return the names, in lower case, of all fields that may carry an idempotency key."""
    keys = [route.idempotency for route in settings.routes]
    honoured = [upstream.honours_key for upstream in settings.upstreams]
    names = {key.header.encode() for key in (*keys, *honoured) if key is not None}
    return frozenset(names | {HonouredKey().header.encode()})


def _verdict(attempt: AttemptRecord) -> VerdictReason | None:
    return _REASONS.get(str(attempt.get("why")))


_REASONS = {reason.value: reason for reason in VerdictReason}


def _path(target: str) -> str:
    """Return the path of *target*, with what is not visible ASCII percent-encoded."""
    path = target.partition("?")[0].encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 0x20 < byte < 0x7F else f"%{byte:02X}" for byte in path)


def _outcomes(route: RouteSettings, request: EndedRequest) -> Iterator[str]:
    """Yield how the attempts ended, in the words of ``--outcome``, as far as it has words."""
    attempts = request.attempts
    for number, attempt in enumerate(attempts):
        following = attempts[number + 1] if number + 1 < len(attempts) else None
        if attempt.get("upstream") != route.upstream:
            return  # the fallback's
        if following is not None and _found_stale(attempt):
            continue
        kind, status = attempt.get("outcome"), attempt.get("status")
        if kind in _KNOWN_KINDS:
            yield str(kind)
        elif isinstance(status, int) and 200 <= status < 600:
            field = _response_field(route, attempt, following)
            yield f"{status}:{field}" if field else str(status)
        else:
            return


def _found_stale(attempt: AttemptRecord) -> bool:
    is_reset = attempt.get("outcome") == FailureKind.RESET
    return is_reset and attempt.get("reused") is True and attempt.get("received") is not True


def _response_field(
    route: RouteSettings, attempt: AttemptRecord, following: AttemptRecord | None
) -> str:
    """Return the field of the response that decided what followed; empty if none did."""
    reason = _verdict(attempt)
    if following is not None:
        wait = following.get("wait_ms")
        if following.get("wait_for") != "hint" or not isinstance(wait, int | float):
            return ""
        return f"retry-after={int(wait // 1000)}" if wait >= 1000 else f"retry-after-ms={int(wait)}"
    if reason is VerdictReason.HINT_TOO_LONG and route.retry and route.retry.longest_hint:
        return f"retry-after={math.floor(route.retry.longest_hint) + 1}"
    return "" if reason is None else _SAID_SO.get(reason, "")
