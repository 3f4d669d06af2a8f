"""YAML parser: text → nodes. Knows nothing about what the keys mean.

The tree is composed here rather than by the library, because an untrusted file
must cost little whatever it contains: depth, size and the expansion of aliases are
bounded while the file is read, not afterwards.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import yaml

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.position import Place, Position, Source
from proxy.config.source.files import reason_of
from proxy.config.source.nodes import Entry, Mapping, Node, Scalar, Sequence

try:
    from yaml import CBaseLoader as _Loader
except ImportError:  # PyYAML built without libyaml: slower, otherwise the same
    from yaml import BaseLoader as _Loader  # type: ignore[assignment]  # same interface, slower

MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 40
_MAX_NODES = 100_000

_STANDARD_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq"))

# The library's messages for common errors, and what we say instead.
_SYNTAX_SUGGESTIONS = (
    ("mapping values are not allowed", 'a ":" is not expected here, put the value in quotes'),
    ("cannot start any token", "a value cannot begin with this character, put it in quotes"),
    ("expected ',' or ']'", 'a list is not closed, write "]" at its end'),
    ("expected ',' or '}'", 'a mapping is not closed, write "}" at its end'),
    ("unexpected end of stream", "a quote is not closed, write the other one"),
    ("unknown escape character", "\\ begins an escape in double quotes, write single quotes"),
    ("expected '-' indicator", 'a list goes on with "- ", write it or indent this line'),
    ("could not find expected ':'", 'a key needs a ":", write one behind it'),
)
_SYNTAX_FALLBACK = "this is not valid YAML, correct the indentation or the quotes here"

# `key: header: X-Tenant` is an error that YAML cannot parse. With another character for the second
# colon it can, so that the value type of the key suggests what to write, and the rest is checked.
_TWO_KEYS = re.compile(r"(\b(?:key|scope):[ ]+(?:header|query)):(?=[\s,}]|$)")
_MENDED_COLON = "\ue000"


_BARE_ADDRESS = re.compile(r":\s+(\[[0-9A-Fa-f:.]*\]:[0-9]{1,5})\s*$")
_KEY_LINE = re.compile(r"(?P<indent> *(?:- +)*)[^\s#:][^:]*:(?:\s+(?P<value>[^#\s].*)?)?$")
_GLUED_COLON = re.compile(r" *(?:- +)*[A-Za-z_]+:(?!//)(?=[^\s#])")
"""A key, and its value right behind the colon, such as ``timeout:10s``."""

_Slip = tuple[int, int, str]
"""The line and the column of something wrong, both from 0, and what to write instead."""


class _Unreadable(Exception):
    """The file cannot be parsed beyond this position."""

    def __init__(self, position: Position, text: str) -> None:
        super().__init__(text)
        self.position = position
        self.text = text


def parse_file(source: Source, diagnostics: Diagnostics) -> Mapping | None:
    """Parse one file; return None if it cannot be read, and report why to *diagnostics*."""
    try:
        return _parse(_read(source), source)
    except _Unreadable as unreadable:
        diagnostics.fault(Place(unreadable.position, ""), unreadable.text)
    return None


def _read(source: Source) -> bytes:
    try:
        # A pipe is allowed, as in `-c /dev/stdin`: reading stops one byte above the limit.
        with source.path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _Unreadable(
            Position(source), f"cannot be read ({reason_of(error)}), correct the path"
        ) from None


def _parse(data: bytes, source: Source) -> Mapping:
    if len(data) > MAX_BYTES:
        raise _Unreadable(
            Position(source, 1, 1),
            f"the file is larger than {MAX_BYTES // 1024}KiB, make it smaller",
        )
    return _tree(_decode(data, source), source)


def _tree(text: str, source: Source) -> Mapping:
    try:
        root = _Composer(yaml.parse(text, Loader=_Loader), source).document()
    except yaml.MarkedYAMLError as error:
        mended = _TWO_KEYS.sub(rf"\1{_MENDED_COLON}", text)
        if mended != text:
            return _tree(mended, source)
        raise _syntax_error(error, text, source) from None
    except yaml.YAMLError:
        # The only YAMLError without a mark is the library's complaint about a control character.
        index = next((i for i, char in enumerate(text) if _is_control(char)), 0)
        raise _Unreadable(
            _position_after(source, text[:index]), "a control character stands here, remove it"
        ) from None
    if root is None or (isinstance(root, Scalar) and root.type == "null"):
        raise _Unreadable(Position(source, 1, 1), "the file is empty, write upstreams and routes")
    if not isinstance(root, Mapping):
        raise _Unreadable(
            root.position, "the file has to begin with keys, write upstreams: and routes: (say)"
        )
    return root


def _decode(data: bytes, source: Source) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8")
        raise _Unreadable(
            _position_after(source, good), "the file is not UTF-8 text, save it as UTF-8"
        ) from None


def _is_control(char: str) -> bool:
    return not char.isprintable() and char not in "\t\n\r\x85\u2028\u2029" and not char.isspace()


def _position_after(source: Source, before: str) -> Position:
    """Return the position right after the text *before*."""
    return Position(source, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _syntax_error(error: yaml.MarkedYAMLError, text: str, source: Source) -> _Unreadable:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return _Unreadable(Position(source, 1, 1), _SYNTAX_FALLBACK)
    lines = text.splitlines()
    problem = error.problem or ""
    suggestion = next(
        (ours for theirs, ours in _SYNTAX_SUGGESTIONS if theirs in problem), _SYNTAX_FALLBACK
    )
    slip = _in_line(lines, mark) or _in_layout(lines, mark, problem, suggestion)
    if slip is not None:
        number, column, text = slip
        return _Unreadable(Position(source, number + 1, column + 1), text)
    # The key or the quote that was opened, not the line below it or the end of the file.
    if any(part in problem for part in ("end of stream", "find expected ':'")):
        mark = error.context_mark or mark
    return _Unreadable(Position(source, mark.line + 1, mark.column + 1), suggestion)


def _in_line(lines: list[str], mark: yaml.Mark) -> _Slip | None:
    """Return what is wrong within the line of *mark*, if it is something well known."""
    line = lines[mark.line] if mark.line < len(lines) else ""
    indentation = re.match(r"[ \t]*", line)
    tab = indentation[0].find("\t") if indentation else -1
    if tab >= 0:
        return mark.line, tab, "YAML cannot be indented with a tab, write two spaces"
    if line[max(mark.column - 1, 0) : mark.column + 1] == "${":
        text = 'within {} and [] a value with ${…} needs quotes, write "${…}"'
        return mark.line, mark.column - 1, text
    address = _BARE_ADDRESS.search(line)
    if address is not None:
        text = f'an address in brackets needs quotes, write "{address[1]}"'
        return mark.line, address.start(1), text
    return None


def _in_layout(lines: list[str], mark: yaml.Mark, problem: str, suggestion: str) -> _Slip | None:
    """Return what is wrong between the line of *mark* and the one above it, if that is known."""
    is_about_colon = "mapping values are not allowed" in problem
    if is_about_colon or "find expected ':'" in problem:
        glued = _glued_colon(lines, mark.line)
        if glued is not None:
            # The value is not repeated: it may be a secret.
            return *glued, 'a space is missing behind the ":", write one'
    if is_about_colon or suggestion == _SYNTAX_FALLBACK:
        above = _key_above(lines, mark.line)
        if above is not None:
            line = lines[mark.line]
            text = (
                f"this line is indented further than line {above[0] + 1}, whose key has a value "
                f"already, begin it with {above[1]} spaces to stand beside that key"
            )
            return mark.line, len(line) - len(line.lstrip()), text
    return None


def _glued_colon(lines: list[str], number: int) -> tuple[int, int] | None:
    """Return the line, and the column behind its colon, of a key whose value is right behind it.

    YAML takes both for one word and complains about the line after it, *number*, or about its end.
    """
    for candidate in (number - 1, number):
        glued = _GLUED_COLON.match(lines[candidate]) if 0 <= candidate < len(lines) else None
        if glued is not None:
            return candidate, glued.end()
    return None


def _key_above(lines: list[str], number: int) -> tuple[int, int] | None:
    """Return the line, and the column, of the key that the line *number* should stand beside.

    None unless that line is a key, indented further than the key with a value before it.
    """
    here = _KEY_LINE.match(lines[number]) if number < len(lines) else None
    for before in range(number - 1, -1, -1):
        if not lines[before].strip() or lines[before].lstrip().startswith("#"):
            continue
        above = _KEY_LINE.match(lines[before])
        if here is None or above is None or not above["value"]:
            return None
        column = len(above["indent"])
        return (before, column) if len(here["indent"]) > column else None
    return None


class _Composer:
    """Composes the tree of nodes from the parser's events."""

    def __init__(self, events: Iterator[yaml.Event], source: Source) -> None:
        self._events = events
        self._source = source
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        """Anchor → its node and the number of nodes in it; None while it is being built."""
        self._count = 0

    def document(self) -> Node | None:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise self._unreadable(
                        event,
                        "a second document begins here, write it to a file of its own and "
                        "repeat -c",
                    )
                root = self._node(next(self._events), 0)
        return root

    def _node(self, event: yaml.Event, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if not isinstance(event, yaml.NodeEvent | yaml.CollectionStartEvent):  # pragma: no cover
            raise self._unreadable(event, _SYNTAX_FALLBACK)
        if depth > _MAX_DEPTH:
            raise self._unreadable(
                event, f"this is nested deeper than {_MAX_DEPTH} levels, make it flatter"
            )
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        before = self._count
        self._add(1, event)
        self._refuse_tag(event, getattr(event, "tag", None))
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, depth)
        else:
            node = self._mapping(event, depth)
        if anchor is not None:
            self._anchors[anchor] = (node, self._count - before)
        return node

    def _alias(self, event: yaml.AliasEvent) -> Node:
        if event.anchor not in self._anchors:
            raise self._unreadable(
                event,
                f"there is no anchor &{event.anchor} above, write *{event.anchor} in quotes if no "
                f"alias is meant",
            )
        known = self._anchors[event.anchor]
        if known is None:
            raise self._unreadable(event, f"&{event.anchor} contains itself, write it out")
        node, size = known
        self._add(size, event)
        return node

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        # Plain only without a tag: `!!str` means a string, as quotes do.
        plain = event.style in (None, "") and event.tag is None
        position, value = self._position(event), event.value
        if plain and _MENDED_COLON in value:
            position = replace(position, column=position.column + value.index(_MENDED_COLON))
        return Scalar(value.replace(_MENDED_COLON, ":"), position, plain)

    def _sequence(self, event: yaml.SequenceStartEvent, depth: int) -> Sequence:
        items = []
        for following in self._events:
            if isinstance(following, yaml.SequenceEndEvent):
                break
            items.append(self._node(following, depth + 1))
        return Sequence(self._position(event), tuple(items))

    def _mapping(self, event: yaml.Event, depth: int) -> Mapping:
        entries: dict[str, Entry[Node]] = {}
        repeated = []
        for following in self._events:
            if isinstance(following, yaml.MappingEndEvent):
                break
            position = self._position(following)
            name = self._node(following, depth + 1)
            if not isinstance(name, Scalar):
                raise _Unreadable(position, "a key is a single word, write one")
            key = name.text
            entry = Entry(key, position, self._node(next(self._events), depth + 1))
            if key in entries:
                repeated.append((entry, entries[key].position))
            else:
                entries[key] = entry
        first = next(iter(entries.values()), None)
        return Mapping(first.position if first else self._position(event), entries, tuple(repeated))

    def _refuse_tag(self, event: yaml.Event, tag: str | None) -> None:
        if tag is not None and tag != "!" and tag not in _STANDARD_TAGS:
            raise self._unreadable(event, "a tag (!…) has no meaning here, remove it")

    def _add(self, count: int, event: yaml.Event) -> None:
        self._count += count
        if self._count > _MAX_NODES:
            raise self._unreadable(
                event,
                f"with its aliases the file has more than {_MAX_NODES} values, make it smaller",
            )

    def _unreadable(self, event: yaml.Event, text: str) -> _Unreadable:
        return _Unreadable(self._position(event), text)

    def _position(self, event: yaml.Event) -> Position:
        mark = event.start_mark
        if mark is None:  # pragma: no cover - the parser always sets it
            return Position(self._source, 1, 1)
        return Position(self._source, mark.line + 1, mark.column + 1)
