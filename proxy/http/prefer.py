"""Prefer (RFC 7240): whether a client asks for 202, how long it would wait, and what is passed on.

Two preferences are honoured, and only together with the first: ``respond-async`` and ``wait=N``.
Those of other names belong to the upstream, and stay as they came, byte for byte. What is malformed
is ignored; of several of the same name the first one counts.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LONGEST_WAIT = 999_999_999
"""Seconds that stand for any longer wait."""

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"'
_PARAMETER = rb"%b(?:[ \t]*=[ \t]*(?:%b|%b))?" % (_TOKEN, _TOKEN, _QUOTED)
_preference = re.compile(
    rb"[ \t]*(?P<name>%b)(?:[ \t]*=[ \t]*(?P<value>%b|%b))?(?:[ \t]*;(?:[ \t]*%b)?)*[ \t]*"
    % (_TOKEN, _TOKEN, _QUOTED, _PARAMETER)
).fullmatch
# A list item ends at a comma outside of quotes; a quote that never ends reaches to the line's end.
_items = re.compile(rb'(?:[^,"]|"(?:[^"\\]|\\.)*(?:"|\\?\Z))*', re.DOTALL).match

_RESPOND_ASYNC = b"respond-async"
_WAIT = b"wait"


@dataclass(frozen=True, slots=True)
class AsyncPreference:
    """What a client says that accepts 202 in place of the response."""

    wait: int | None = None
    """Seconds for which it would rather wait for the response; None: it does not say."""

    def applied(self, waited: int | None) -> bytes:
        """Return the value of ``Preference-Applied``.

        *waited* are the seconds for which its response was waited for at most; None: it was not.
        """
        if self.wait is None or waited is None:
            return _RESPOND_ASYNC
        return b"%b, %b=%d" % (_RESPOND_ASYNC, _WAIT, waited)


def read_prefer(lines: Iterable[bytes]) -> AsyncPreference | None:
    """Return what the values of all ``Prefer`` fields say; None if 202 is not asked for."""
    is_asked, wait = False, None
    for item in (item for line in lines for item in _split(line)):
        name, value = _read(item)
        if name == _RESPOND_ASYNC:
            is_asked = True
        elif name == _WAIT and wait is None:
            wait = min(int(value.lstrip(b"0")[:10] or b"0"), _LONGEST_WAIT)
    return AsyncPreference(wait) if is_asked else None


def without_honoured(line: bytes, preference: AsyncPreference) -> bytes:
    """Return the value of one ``Prefer`` field without what is honoured; empty: nothing is left.

    *preference* is what :func:`read_prefer` returned for all of them.
    """
    honoured = {_RESPOND_ASYNC} if preference.wait is None else {_RESPOND_ASYNC, _WAIT}
    items = [*_split(line)]
    kept = [item for item in items if _read(item)[0] not in honoured]
    if len(kept) == len(items):
        return line
    return b",".join(kept).strip(b" \t") if any(item.strip() for item in kept) else b""


def _split(line: bytes) -> Iterator[bytes]:
    """Yield the items of a list as they are, blanks included."""
    start = 0
    while start <= len(line):
        found = _items(line, start)
        end = len(line) if found is None else found.end()
        yield line[start:end]
        start = end + 1


def _read(item: bytes) -> tuple[bytes, bytes]:
    """Return name and value of a preference that may be honoured; nothing for any other."""
    found = _preference(item)
    if found is None:
        return b"", b""
    name, value = found["name"].lower(), found["value"] or b""
    if value.startswith(b'"'):
        value = re.sub(rb"\\(.)", rb"\1", value[1:-1], flags=re.DOTALL)
    # RFC 7240 2: an empty value is none.
    is_ours = not value if name == _RESPOND_ASYNC else name == _WAIT and value.isdigit()
    return (name, value) if is_ours else (b"", b"")
