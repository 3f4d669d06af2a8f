"""Unknown keys: the suggestion of what to write instead."""

import re
from dataclasses import dataclass

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import meant, nearest
from proxy.config.diagnostics.other_products import SYNONYMS, by_other_word
from proxy.config.schema.file import FILE
from proxy.config.schema.listen import LISTEN
from proxy.config.schema.route import HEADER_EDITS, HEADERS
from proxy.config.schema.section import Section, sections
from proxy.config.schema.store import STORE
from proxy.config.source.nodes import Entry, Node, Scalar
from proxy.config.values.addresses import UpstreamUrl
from proxy.config.values.base import Integer
from proxy.config.values.paths import below
from proxy.http.durations import parse_duration

_EDITS = by_other_word({"set": "add append insert", "remove": "delete drop unset hide"})
"""What other products call the changes of header fields."""

_IN_SEVERAL_PLACES = {"tls": "listen, an upstream or store"}
"""Where a key can be meant that several sections have."""


@dataclass(frozen=True, slots=True)
class KeySuggestion:
    """The text for an unknown key, and the known key that was probably meant."""

    text: str
    """The second half of ``unknown key, …``."""
    meant: str = ""


def unknown_key(entry: Entry[Node], section: Section) -> KeySuggestion:
    """Suggest what to write instead of the unknown key of *entry*."""
    key, known = entry.key, section.keys
    for ours in SYNONYMS.get(key, ()):
        outermost = ours.partition(".")[0]
        if outermost in known:
            return KeySuggestion(f"write {_rewritten(ours, entry)}", outermost)
    # `store` is two letters from `scope`, but is a key of its own, in the wrong section.
    near = "" if key == "store" else nearest(key, known)
    if near:
        return KeySuggestion(f"did you mean {near}?", near)
    if section is STORE:
        return KeySuggestion(_for_store(key), "url")
    return KeySuggestion(_where_it_belongs(entry, section))


def _for_store(key: str) -> str:
    if key in {"path", "file"}:
        return "write url: sqlite:PATH"
    others = [name for name in STORE.keys if name != "url"]
    return f"write url: redis://HOST:PORT/DATABASE or sqlite:PATH, or one of {', '.join(others)}"


def _where_it_belongs(entry: Entry[Node], section: Section) -> str:
    key = entry.key
    if key == "store":
        return f"write store: {_store_of(entry.node)} at the top of the file"
    if section is HEADERS:
        edit = meant(key, HEADER_EDITS.keys, _EDITS)
        one = f"{edit}: …" if edit else f"set: {{{key}: …}}"
        also = ", or response for the way back" if edit else ""
        return f"write headers: {{request: {{{one}}}}}{also}"
    if section is LISTEN and key == "host":
        return "write address: HOST:PORT"
    # Sections below this one come first: they are the nearer explanation.
    others = [*sections(section), *sections(FILE)]
    if section is FILE and key in _IN_SEVERAL_PLACES:
        return f"it belongs to {_IN_SEVERAL_PLACES[key]}, write it there"
    for ours in (key, *SYNONYMS.get(key, ())):
        for other in others:
            if ours in other.keys:
                called = "" if ours == key else f"is called {ours} and "
                return f"it {called}belongs to {other.belongs_to}, write it there"
    return f"write one of {', '.join(section.keys)}"


def _rewritten(ours: str, entry: Entry[Node]) -> str:
    """Return our key, with the value that was written if it is certainly no secret."""
    node = entry.node
    value = node.text if isinstance(node, Scalar) else ""
    *outer, key = ours.split(".")
    if key == "urls":
        try:
            UpstreamUrl().read(Scalar(value, node.position))
        except InvalidValue:
            value = "https://…"
        return f"urls: [{value}]"
    if key in {"match", "path", "address"}:
        return f"{key}: {_place_for(key, value)}"
    if key == "attempts":
        return _attempts_for(entry, outer)
    number = value if re.fullmatch("[1-9][0-9]{0,8}", value) else ""
    if key == "rate" or (key == "throttle" and number):
        calls = number or "100"
        return f"{_within(outer, f'{key}: {calls}/s')} (or {calls}/m, {calls}/h)"
    is_time = key == "for" and parse_duration(value) is not None
    if is_time or (key in {"burst", "concurrency"} and number):
        return _within(outer, f"{key}: {value}")
    return _within(outer, f"{key}: …") if outer else key


def _place_for(key: str, value: str) -> str:
    """Return what to write for a path, or for an address to listen on, for which *value* stood."""
    if key == "address":
        port = value if re.fullmatch("[0-9]{1,5}", value) else "8080"
        return f"127.0.0.1:{port}, or 0.0.0.0:{port} to be reachable from outside"
    return below(value) if value.startswith("/") else "/prefix/**"


def _store_of(node: Node) -> str:
    """Return a store as it was written, if it is certainly no secret."""
    written = node.text if isinstance(node, Scalar) else ""
    return written if re.fullmatch(r"memory|sqlite:[^@]+", written) else "redis://…"


def _attempts_for(entry: Entry[Node], outer: list[str]) -> str:
    """Return the number of attempts for a number of retries, or of attempts at most."""
    node, counts_first = entry.node, entry.key.lower() in {"max_attempts", "maxattempts"}
    try:
        number = Integer(0, 99).read(node) if isinstance(node, Scalar) else None
    except InvalidValue:
        number = None
    if counts_first:
        return _within(outer, f"attempts: {number or 'N'}")
    text = f"attempts: {'N+1' if number is None else number + 1}"
    return f"{_within(outer, text)} (attempts counts the first call)"


def _within(keys: list[str], text: str) -> str:
    """Nest *text* below *keys*: ``retry: {backoff: {text}}``."""
    for key in reversed(keys):
        text = f"{key}: {{{text}}}"
    return text
