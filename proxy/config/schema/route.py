"""Keys of a route, of its match, and of a policy."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from proxy.config.schema.dead_letter import DEAD_LETTER
from proxy.config.schema.hand_off import HAND_OFF
from proxy.config.schema.idempotency import IDEMPOTENCY
from proxy.config.schema.retry import FALLBACK, RETRY
from proxy.config.schema.section import NO_FIELD, Key, ListOf, Section, TableOf
from proxy.config.schema.shorthands import MethodAndPath, OneOrMore
from proxy.config.schema.throttle import THROTTLE
from proxy.config.values.base import Name
from proxy.config.values.headers import EditableHeader, HeaderName, HeaderValue, field_lines
from proxy.config.values.outcomes import outcomes_of
from proxy.config.values.paths import HostPattern, Method, PathPattern, PathPrefix, Protocol
from proxy.config.values.quantities import Duration, Size
from proxy.http.header_edits import HeaderEdits
from proxy.policy.settings import (
    USUAL_OUTCOMES,
    DeadLetterSettings,
    FallbackSettings,
    HandOffSettings,
    Match,
    Outcomes,
    RetrySettings,
    RouteSettings,
)


def _lower_names(fields: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in fields.items())


MATCH = Section(
    "MatchKeys",
    "What a request must look like: all that is written here must hold.",
    belongs_to="match",
    settings=Match,
    shorthands=(MethodAndPath(),),
    keys={
        "path": Key(
            ListOf(PathPattern(), OneOrMore(), can_be_empty=False),
            "Path or list of paths. * is one segment, a final /** the rest.",
            to="paths",
        ),
        "methods": Key(
            ListOf(Method(), can_be_empty=False),
            "Methods; GET does not include HEAD. Default: every one.",
            written=None,
        ),
        "host": Key(
            ListOf(HostPattern(), OneOrMore(), can_be_empty=False),
            "Host name or list of them, without port; *.example.com is every name below it. "
            "Default: every one.",
            to="hosts",
            written=None,
        ),
        "headers": Key(
            TableOf(HeaderName(), HeaderValue()),
            "Header fields and the values they must have; a final * stands for any rest. A "
            "request that matches, but has a field without such a * twice: 400.",
            make=_lower_names,
            examples=({"X-Tenant": "acme"},),
        ),
    },
)


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


HEADER_EDITS = Section(
    "HeaderEditKeys",
    "Header fields to set and to remove.",
    belongs_to="headers.request or headers.response",
    settings=HeaderEdits,
    keys={
        "set": Key(
            TableOf(EditableHeader(), HeaderValue()),
            "Fields to set, in place of existing ones. Merges with those of defaults and policies.",
            make=field_lines,
            examples=({"Authorization": "Bearer ${API_TOKEN}"},),
        ),
        "remove": Key(ListOf(EditableHeader()), "Fields to remove.", make=_lower),
    },
)

HEADERS = Section(
    "HeadersKeys",
    "Changes to the header fields that pass through.",
    belongs_to="headers",
    settings=RouteSettings,
    keys={
        "request": Key(HEADER_EDITS, "On the way to the upstream.", to="request_headers"),
        "response": Key(HEADER_EDITS, "On the way back to the client.", to="response_headers"),
    },
)

POLICY = Section(
    "PolicyKeys",
    "What a route does with its requests. The same keys in defaults, policies and routes.",
    belongs_to="a route, a policy or defaults",
    settings=RouteSettings,
    keys={
        "strip_prefix": Key(
            PathPrefix(), "Removed from the path before the request is sent.", written=None
        ),
        "timeout": Key(
            Duration(zero="leaves no time for any request, write none for no limit", none=True),
            "For the whole exchange up to the response's head, without the time that we wait for "
            "the client's own bytes; then 504.",
        ),
        "idle_timeout": Key(
            Duration(zero="leaves no time for any body, write none for no limit", none=True),
            "Longest time without a byte of a body, in either direction.",
        ),
        "max_body": Key(Size(none=True), "Largest request body; beyond it 413."),
        "buffer": Key(
            Size(),
            "Request bodies up to this size are kept for another attempt; larger ones are sent "
            "once.",
        ),
        "upgrades": Key(
            ListOf(Protocol()),
            "Protocols that a client may switch to, tunnelled as they are; [] for none.",
        ),
        "headers": Key(
            HEADERS,
            "Header fields to set and remove.",
            examples=({"request": {"set": {"Authorization": "Bearer ${API_TOKEN}"}}},),
        ),
        "retry": Key(RETRY, "Sends a request again that failed, where that is safe."),
        "throttle": Key(THROTTLE, "Limits the calls of this route; those beyond wait, or get 429."),
        "idempotency": Key(
            IDEMPOTENCY, "Runs a request with a key once; duplicates get the first result."
        ),
        "fallback": Key(
            FALLBACK,
            "What the client gets in place of a failure.",
            examples=({"status": 503, "body": "try again later"},),
        ),
        "dead_letter": Key(
            DEAD_LETTER,
            "Keeps a request that failed for good on disk, for a person to send it again.",
        ),
        "hand_off": Key(
            HAND_OFF,
            "Accepts a request with 202, keeps it on disk and delivers it in the background.",
            examples=(True, "always", {"when": ["asked", "failed"]}),
        ),
    },
)


def _route(
    *,
    retry: RetrySettings | None = None,
    fallback: dict[str, Any] | None = None,
    dead_letter: dict[str, Any] | None = None,
    hand_off: dict[str, Any] | None = None,
    **others: Any,  # noqa: ANN401 - fields of any type
) -> RouteSettings:
    """Make a route, whose retries say what is usual for its fallback, letters and deliveries."""
    usual = USUAL_OUTCOMES if retry is None else retry.on
    route = RouteSettings(
        retry=retry,
        fallback=None if fallback is None else _fallback(usual, **fallback),
        dead_letter=None if dead_letter is None else _dead_letter(usual, **dead_letter),
        **others,
    )
    return route if hand_off is None else replace(route, hand_off=_hand_off(route, **hand_off))


def _fallback(
    usual: Outcomes,
    on: Iterable[str | int] | None = None,
    **others: Any,  # noqa: ANN401 - fields of any type
) -> FallbackSettings:
    """Make a fallback; without ``on`` it replaces *usual* outcomes and an open breaker."""
    outcomes = _or_breaker_open(usual)
    if on is not None:
        outcomes = outcomes_of(on, _or_breaker_open(USUAL_OUTCOMES))
    return FallbackSettings(on=outcomes, **others)


def _dead_letter(
    usual: Outcomes,
    on: Iterable[str | int] | None = None,
    **others: Any,  # noqa: ANN401 - fields of any type
) -> DeadLetterSettings:
    """Make dead letters; without ``on`` a request is kept after *usual* outcomes."""
    return DeadLetterSettings(on=usual if on is None else outcomes_of(on, usual), **others)


def _hand_off(
    route: RouteSettings,
    **written: Any,  # noqa: ANN401 - fields of any type
) -> HandOffSettings:
    """Make the hand-off of *route*, by default with its ``timeout`` and ``retry.unsafe``."""
    usual: dict[str, Any] = {"timeout": route.timeout}
    if route.retry is not None:
        usual["unsafe"] = route.retry.unsafe
    return HandOffSettings(**usual | written)


def _or_breaker_open(outcomes: Outcomes) -> Outcomes:
    return replace(outcomes, names=outcomes.names | {"breaker_open"})


ROUTE = Section(
    "RouteKeys",
    "Which requests go where.",
    belongs_to="a route",
    settings=RouteSettings,
    make=_route,
    keys={
        **POLICY.keys,
        "name": Key(
            Name(),
            "For metrics, logs, limits and stored keys. Default: its first path.",
            written=None,
        ),
        "match": Key(MATCH, "/v1/**, or POST /v1/charges, or a mapping."),
        "upstream": Key(Name(), "The name of an upstream."),
        "policy": Key(
            ListOf(Name(), OneOrMore()),
            "The name of a policy, or a list of them: later ones win, the route itself over all.",
            to=NO_FIELD,
            written=[],
        ),
    },
)
