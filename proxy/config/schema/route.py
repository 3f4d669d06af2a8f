"""Keys of a route, of its match, and of a policy."""

from typing import Annotated, Literal

from annotated_types import MinLen

from proxy.config.schema.dead_letter import DeadLetterKeys
from proxy.config.schema.idempotency import IdempotencyKeys
from proxy.config.schema.retry import FallbackKeys, RetryKeys
from proxy.config.schema.section import Section, described
from proxy.config.schema.shorthands import MethodAndPath, OneOrMore, SetsKey, Switchable
from proxy.config.schema.throttle import Throttle
from proxy.config.values.base import Name
from proxy.config.values.headers import EditableHeader, HeaderName, HeaderValue
from proxy.config.values.paths import HostPattern, Method, PathPattern, PathPrefix, Protocol
from proxy.config.values.quantities import Duration, Size
from proxy.config.values.retrying import AttemptCount

_NO_REQUEST = "leaves no time for any request, write none for no limit"
_NO_BODY = "leaves no time for any body, write none for no limit"


class MatchKeys(Section):
    """What a request must look like: all that is written here must hold."""

    belongs_to = "match"

    path: Annotated[list[Annotated[str, PathPattern()]], MinLen(1), OneOrMore()] = described(
        "Path or list of paths. * is one segment, a final /** the rest.", ["/**"]
    )
    methods: Annotated[list[Annotated[str, Method()]] | None, MinLen(1)] = described(
        "Methods; GET does not include HEAD. Default: every one.", None
    )
    host: Annotated[list[Annotated[str, HostPattern()]] | None, MinLen(1), OneOrMore()] = described(
        "Host name or list of them, without port; *.example.com is every name below it. "
        "Default: every one.",
        None,
    )
    headers: dict[Annotated[str, HeaderName()], Annotated[str, HeaderValue()]] = described(
        "Header fields and the values they must have; a final * stands for any rest. A request "
        "that fits, but has a field without such a * twice: 400.",
        {},
    )


class HeaderEditKeys(Section):
    """Header fields to set and to remove."""

    belongs_to = "headers.request or headers.response"

    set: dict[Annotated[str, EditableHeader()], Annotated[str, HeaderValue()]] = described(
        "Fields to put in place of what is there. Merges with those of defaults and policies.", {}
    )
    remove: list[Annotated[str, EditableHeader()]] = described("Fields to take out.", [])


class HeadersKeys(Section):
    """Changes to the header fields that pass through."""

    belongs_to = "headers"

    request: HeaderEditKeys = described("On the way to the upstream.", {})
    response: HeaderEditKeys = described("On the way back to the client.", {})


class PolicyKeys(Section):
    """What a route does with its requests. The same keys in defaults, policies and routes."""

    belongs_to = "a route, a policy or defaults"

    strip_prefix: Annotated[str | None, PathPrefix()] = described(
        "Taken off the path before the request is sent on.", None
    )
    timeout: Annotated[float | None, Duration(zero=_NO_REQUEST, none=True)] = described(
        "For the whole exchange up to the response's head, without the time that we wait for the "
        "client's own bytes; then 504.",
        "30s",
    )
    idle_timeout: Annotated[float | None, Duration(zero=_NO_BODY, none=True)] = described(
        "Longest silence of a body, either way.", "5m"
    )
    max_body: Annotated[int | None, Size(none=True)] = described(
        "Largest request body; beyond it 413.", "none"
    )
    buffer: Annotated[int, Size()] = described(
        "Request bodies up to this size are kept for another attempt; larger ones are sent once.",
        "1MiB",
    )
    upgrades: list[Annotated[str, Protocol()]] = described(
        "Protocols that a client may switch to, tunnelled as they are; [] for none.", ["websocket"]
    )
    headers: HeadersKeys = described("Header fields to set and remove.", {})
    retry: Annotated[
        RetryKeys | Literal[False], Switchable(), SetsKey("attempts", AttemptCount(), named=True)
    ] = described("Sends a request again that failed, where that is safe.", default=False)
    throttle: Throttle = described(
        "Limits the calls of this route; those beyond wait, or get 429.", default=False
    )
    idempotency: Annotated[IdempotencyKeys | Literal[False], Switchable()] = described(
        "Runs a request with a key once; duplicates get the first result.", default=False
    )
    fallback: Annotated[FallbackKeys | Literal[False], Switchable()] = described(
        "What the client gets in place of a failure.", default=False
    )
    dead_letter: Annotated[DeadLetterKeys | Literal[False], Switchable()] = described(
        "Keeps a request that failed for good on disk, for a person to send it again.",
        default=False,
    )


class RouteKeys(PolicyKeys):
    """Which requests go where."""

    belongs_to = "a route"

    name: Annotated[str, Name()] = described(
        "For metrics, logs and messages. Default: its path.", None
    )
    match: Annotated[MatchKeys, MethodAndPath()] = described(
        "/v1/**, or POST /v1/charges, or a mapping."
    )
    upstream: Annotated[str, Name()] = described("The name of an upstream.")
    policy: Annotated[list[Annotated[str, Name()]], OneOrMore()] = described(
        "The name of a policy, or a list of them: later ones win, the route itself over all.", []
    )
