"""What to write in place of a key that does not exist."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from proxy.config import models
from proxy.config.faults import Mistake
from proxy.config.kinds.addresses import UpstreamUrl
from proxy.config.kinds.paths import below
from proxy.config.nodes import Entry, Node, Scalar
from proxy.config.words import ELSEWHERE, NOT_YET, nearest


@dataclass(frozen=True, slots=True)
class Advice:
    """What to say to a key that does not exist, and which key was meant."""

    text: str
    """The second half of ``unknown key, …``."""
    meant: str = ""


def unknown_key(entry: Entry[Node], section: type[models.Section]) -> Advice:
    """What the author of *entry* should write instead of it."""
    key, known = entry.key, section.model_fields
    if key in NOT_YET:
        return Advice(NOT_YET[key])
    for ours in ELSEWHERE.get(key, ()):
        if ours in known:
            return Advice(f"write {_rewritten(ours, entry.node)}", ours)
        if ours in NOT_YET:
            return Advice(NOT_YET[ours])
    near = nearest(key, known)
    if near:
        return Advice(f"did you mean {near}?", near)
    return Advice(_place_for(key, section))


def _place_for(key: str, section: type[models.Section]) -> str:
    if section is models.HeadersKeys:
        return f"write headers: {{request: {{set: {{{key}: …}}}}}}"
    for other in _sections():
        if key in other.model_fields:
            return f"it belongs to {other.belongs_to}, write it there"
    return f"write one of {', '.join(section.model_fields)}"


def _rewritten(ours: str, node: Node) -> str:
    """Our key, with the value that was written where that is sure to be harmless."""
    value = node.text if isinstance(node, Scalar) else ""
    if ours == "urls":
        try:
            UpstreamUrl().read(Scalar(value, node.spot))
        except Mistake:
            value = "https://…"
        return f"urls: [{value}]"
    if ours in {"match", "path"}:
        return f"{ours}: {below(value) if value.startswith('/') else '/prefix/**'}"
    return ours


def _sections() -> Iterator[type[models.Section]]:
    """Every section below the top of the file, the outer ones first."""
    waiting: list[Any] = [models.FileKeys]
    while waiting:
        shape = waiting.pop(0)
        if isinstance(shape, type) and issubclass(shape, models.Section):
            yield shape
            waiting += [field.annotation for field in shape.model_fields.values()]
        else:
            waiting += get_args(shape)
