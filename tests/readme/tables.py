"""The key tables of README.md, made from the models, so that the two cannot drift apart.

Each stands between ``<!-- keys: SECTION -->`` and ``<!-- end -->``. After a change of a key, run
``make generate``.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from proxy.config import schema
from proxy.config.diagnostics.units import format_duration, format_size
from proxy.config.schema.dead_letter import DeadLetterKeys
from proxy.config.schema.idempotency import IdempotencyKeys
from proxy.config.schema.route import PolicyKeys, RouteKeys
from proxy.config.schema.section import Section
from proxy.config.schema.shorthands import MethodAndPath, OneOrMore, SetsKey, Switchable
from proxy.config.schema.throttle import ThrottleKeys
from proxy.config.schema.upstream import UpstreamKeys
from proxy.config.values.addresses import (
    AdminAddress,
    ListenAddress,
    ServerName,
    TrustedPeer,
    UpstreamUrl,
)
from proxy.config.values.base import Choice, Integer, Name, Number, Switch, Text, Token, ValueType
from proxy.config.values.headers import HeaderName, HeaderValue, Pseudonym
from proxy.config.values.idempotency import CallerHeader, KeptStatus, KeyedMethod, MismatchStatus
from proxy.config.values.locations import FilePath, FolderPath
from proxy.config.values.outcomes import OutcomeName, Status
from proxy.config.values.paths import HostPattern, Method, PathPattern, PathPrefix, Protocol
from proxy.config.values.processes import MOST_WORKERS, WorkerCount
from proxy.config.values.quantities import ByteRate, Duration, Size
from proxy.config.values.rates import CallRate
from proxy.config.values.retrying import Jitter
from proxy.config.values.stores import KeyPrefix, Password, StoreUrl, Username
from proxy.config.values.throttling import CallerKey, CountOrNone, DurationOrAuto

README = Path(__file__).parent.parent.parent / "README.md"

_TABLE = re.compile(r"(?<=<!-- keys: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)

_WITH_OWN_TABLE = (
    UpstreamKeys,
    PolicyKeys,
    RouteKeys,
    ThrottleKeys,
    IdempotencyKeys,
    DeadLetterKeys,
)

_WORDS: dict[type[ValueType[Any]], str] = {
    ListenAddress: "address",
    AdminAddress: "address or `false`",
    ByteRate: "byte rate or `none`",
    CallRate: "rate",
    CallerHeader: "`header:NAME`",
    CallerKey: "`none`, `client_ip`, `header:NAME` or `query:NAME`",
    CountOrNone: "number or `none`",
    DurationOrAuto: "duration or `auto`",
    FolderPath: "folder",
    FilePath: "file",
    HeaderName: "header",
    HeaderValue: "value",
    HostPattern: "host",
    Method: "method",
    Jitter: "`full` or `equal` or `decorrelated` or `none` or 0 to 1",
    KeptStatus: "status",
    Pseudonym: "one word",
    KeyPrefix: "text",
    KeyedMethod: "method",
    MismatchStatus: "422 or 409",
    Name: "name",
    OutcomeName: "outcome",
    Password: "text",
    PathPattern: "path",
    PathPrefix: "path",
    Protocol: "protocol",
    ServerName: "host name",
    StoreUrl: "`memory`, `sqlite:PATH` or URL",
    Switch: "`true` or `false`",
    Text: "text",
    Token: "text",
    TrustedPeer: "network",
    UpstreamUrl: "URL",
    Username: "text",
    WorkerCount: f"1 to {MOST_WORKERS}, or `auto`",
}


def with_tables(text: str) -> str:
    """*text* with every table as the models have it now."""
    return _TABLE.sub(lambda found: found[1] + found[2] + table(found[1]), text)


def tables(text: str) -> list[str]:
    """Names of the models that *text* has a table for."""
    return [found[1] for found in _TABLE.finditer(text)]


def table(section: str) -> str:
    """Every key of the model called *section*, and of the mappings inside it."""
    rows = _rows(getattr(schema, section))
    return "\n".join(("| key | value | default | meaning |", "|---|---|---|---|", *rows, ""))


def _rows(model: type[Section], prefix: str = "") -> Iterator[str]:
    """A row for each key that *model* has itself, not by inheritance."""
    for key, field in model.model_fields.items():
        if key not in model.__annotations__:
            continue
        inner, is_listed = _inner(field.annotation)
        value = _value(field.annotation, field.metadata)
        if value != "mapping" or inner is None:
            meaning = (field.description or "").replace("*", r"\*")
            yield f"| `{prefix}{key}` | {value} | {_default(field)} | {meaning} |"
        if inner is not None:
            yield from _rows(inner, f"{prefix}{key}{'[]' if is_listed else ''}.")


def _inner(shape: Any) -> tuple[type[Section] | None, bool]:  # noqa: ANN401 - any annotation
    """The mapping with a fixed set of keys that a key takes, and whether it takes many.

    None if it takes no such mapping, or one that has a table of its own.
    """
    if isinstance(shape, type) and issubclass(shape, Section):
        return (None if shape in _WITH_OWN_TABLE else shape), False
    if get_origin(shape) is dict:
        return None, False
    found = (_inner(argument)[0] for argument in get_args(shape))
    return next((section for section in found if section), None), get_origin(shape) is list


def _value(shape: Any, metadata: Sequence[Any]) -> str:  # noqa: ANN401 - any annotation
    """What can be written, in a few words."""
    value_type = next((item for item in metadata if isinstance(item, ValueType)), None)
    if value_type is not None:
        return _kind(value_type)
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return _value(arguments[0], arguments[1:])
    if origin in {Union, UnionType}:
        # Neither nothing nor `false` is a shape of its own.
        (shape,) = (
            part for part in arguments if part is not NoneType and get_origin(part) is not Literal
        )
        return _value(shape, metadata)
    if origin is list:
        item = _value(arguments[0], ())
        one_will_do = any(isinstance(extra, OneOrMore) for extra in metadata)
        plural = f"{item}es" if item.endswith("s") else f"{item}s"
        return f"{item}, or a list" if one_will_do else f"list of {plural}"
    if origin is dict:
        key, value = (_value(argument, ()) for argument in arguments)
        return f"mapping, {key}: {value}"
    return _mapping(metadata)


def _mapping(metadata: Sequence[Any]) -> str:
    short = []
    for extra in metadata:
        if isinstance(extra, MethodAndPath):
            return "path, method and path, or mapping"
        if isinstance(extra, Switchable):
            short += ["`true`", "`false`"]
        if isinstance(extra, SetsKey):
            short.append(_kind(extra.value_type))
    return f"{', '.join(short)} or mapping" if short else "mapping"


def _kind(value_type: ValueType[Any]) -> str:
    match value_type:
        case Duration(zero=zero, least=least, none=none):
            least_time = f" from {format_duration(least)}" if least else " above 0s" if zero else ""
            return f"duration{least_time}{' or `none`' if none else ''}"
        case Size(least=least, none=none):
            least_size = f" from {format_size(least)}" if least else ""
            return f"size{least_size}{' or `none`' if none else ''}"
        case Status():
            return "status"
        case Integer(least=least, most=most) | Number(least=least, most=most):
            above = "above " if isinstance(value_type, Number) and value_type.above else ""
            return f"{above}{least} to {most}"
        case Choice(words=words):
            return " or ".join(f"`{word}`" for word in words)
    return next(words for known, words in _WORDS.items() if isinstance(value_type, known))


def _default(field: FieldInfo) -> str:
    default = field.default
    if field.is_required():
        return "must be there"
    if default == {} and any(isinstance(extra, Switchable) for extra in field.metadata):
        return "`true`"
    if default is None or default in ({}, []):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{default}`"
