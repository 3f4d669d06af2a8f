"""The key tables of docs/reference/configuration.md, made from the sections.

Each stands between ``<!-- keys: SECTION -->`` and ``<!-- end -->``. After a change of a key, run
``make generate``.
"""

import re
from collections.abc import Iterator
from typing import Any

from proxy.config.diagnostics.units import format_duration, format_size
from proxy.config.schema import FILE, ListOf, Section, Shape, TableOf, sections
from proxy.config.schema.dead_letter import DEAD_LETTER
from proxy.config.schema.hand_off import HAND_OFF
from proxy.config.schema.idempotency import IDEMPOTENCY
from proxy.config.schema.route import POLICY, ROUTE
from proxy.config.schema.shorthands import ListSetsKey, MethodAndPath, SetsKey
from proxy.config.schema.throttle import THROTTLE
from proxy.config.schema.upstream import UPSTREAM
from proxy.config.values.addresses import (
    AdminAddress,
    ListenAddress,
    ServerName,
    TrustedPeer,
    UpstreamUrl,
)
from proxy.config.values.base import Choice, Integer, Name, Number, Switch, Text, Token, ValueType
from proxy.config.values.hand_off import DeliveredStatus, DeliveryAttempts, StatusPath
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
from proxy.policy.settings import MOST_DELIVERY_ATTEMPTS

_TABLE = re.compile(r"(?<=<!-- keys: )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)

SECTIONS = {section.name: section for section in sections(FILE)}

_WITH_OWN_TABLE = (UPSTREAM, POLICY, ROUTE, THROTTLE, IDEMPOTENCY, DEAD_LETTER, HAND_OFF)

_WORDS: dict[type[ValueType[Any]], str] = {
    ListenAddress: "address",
    AdminAddress: "address or `false`",
    ByteRate: "byte rate or `none`",
    CallRate: "rate",
    CallerHeader: "`header:NAME`",
    CallerKey: "`none`, `client_ip`, `header:NAME` or `query:NAME`",
    CountOrNone: "number or `none`",
    DurationOrAuto: "duration or `auto`",
    DeliveredStatus: "status",
    DeliveryAttempts: f"1 to {MOST_DELIVERY_ATTEMPTS}, or `none`",
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
    StatusPath: "path or `false`",
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
    """*text* with every table as the sections have it now."""
    return _TABLE.sub(lambda found: found[1] + found[2] + table(found[1]), text)


def tables(text: str) -> list[str]:
    """Names of the sections that *text* has a table for."""
    return [found[1] for found in _TABLE.finditer(text)]


def table(section: str) -> str:
    """Every key of the section called *section*, and of the mappings inside it."""
    rows = _rows(SECTIONS[section])
    return "\n".join(("| key | value | default | meaning |", "|---|---|---|---|", *rows, ""))


def _rows(section: Section, prefix: str = "") -> Iterator[str]:
    """A row for each key of *section*; of a route those that a policy does not have."""
    for name, key in section.keys.items():
        if section is ROUTE and name in POLICY.keys:
            continue
        inner, is_listed = _inner(key.shape)
        value = _value(key.shape)
        if value != "mapping" or inner is None:
            meaning = key.text.replace("*", r"\*")
            yield f"| `{prefix}{name}` | {value} | {_default(section, name)} | {meaning} |"
        if inner is not None:
            yield from _rows(inner, f"{prefix}{name}{'[]' if is_listed else ''}.")


def _inner(shape: Shape) -> tuple[Section | None, bool]:
    """The mapping with a fixed set of keys that a key takes, and whether it takes many.

    None if it takes no such mapping, or one that has a table of its own.
    """
    if isinstance(shape, ListOf):
        return _inner(shape.item)[0], True
    is_inside = isinstance(shape, Section) and shape not in _WITH_OWN_TABLE
    return (shape if isinstance(shape, Section) and is_inside else None), False


def _value(shape: Shape) -> str:
    """What can be written, in a few words."""
    if isinstance(shape, ValueType):
        return _kind(shape)
    if isinstance(shape, ListOf):
        item = _value(shape.item)
        noun, *bounds = item.split(" above ")
        noun = f"{noun}es" if noun.endswith("s") else f"{noun}s"
        plural = " above ".join((noun, *bounds))
        return f"list of {plural}" if shape.short is None else f"{item}, or a list"
    if isinstance(shape, TableOf):
        return f"mapping, {_value(shape.names)}: {_value(shape.values)}"
    return _mapping(shape)


def _mapping(section: Section) -> str:
    short = ["`true`", "`false`"] if section.can_be_off else []
    for shorthand in section.shorthands:
        if isinstance(shorthand, MethodAndPath):
            return "path, method and path, or mapping"
        if isinstance(shorthand, ListSetsKey):
            short.append(_value(section.keys[shorthand.key].shape))
        if isinstance(shorthand, SetsKey):
            key = section.keys[shorthand.key].shape
            short.append(_value(key.item if isinstance(key, ListOf) else key))
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


def _default(section: Section, name: str) -> str:
    shape, default = section.keys[name].shape, section.written(name)
    if name in section.required:
        return "must be there"
    if default == {} and isinstance(shape, Section) and shape.can_be_off:
        return "`true`"
    if default is None or default in ({}, []):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{default}`"
