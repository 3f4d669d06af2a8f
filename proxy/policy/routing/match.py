"""Route matching: a request takes the first route of the file whose conditions all match.

The conditions of one :class:`~proxy.policy.settings.Match`:

- **paths**: see :mod:`proxy.policy.routing.paths`.
- **methods**: one of those listed. GET does not include HEAD.
- **hosts**: the name itself, or ``*.example.com`` for every name below it, but
  not for ``example.com``.
- **headers**: for each the request has a field with this value, or with this beginning
  where the value ends in ``*``. Bytes beyond ASCII are read as Latin-1.

Three implementations of these rules must agree. :func:`mismatch` states them plainly,
:func:`covers` compares two matches, and :class:`RouteTable` answers for a whole
file in about the same time however long the file is. The tests check the other
two against the first.
"""

from collections.abc import Callable
from operator import eq

from proxy.http.fields import RawHeaders
from proxy.policy.routing.paths import ANY_PATH, PathIndex, path_covers, path_matches
from proxy.policy.settings import Match

_Header = tuple[str, str]


def mismatch(
    match: Match, method: str, host: str, path: str, raw_headers: RawHeaders
) -> str | None:
    """Return the first reason why *match* does not take this request; None if it does.

    Takes the arguments of :meth:`RouteTable.find`. The reason says what the route demands
    and never quotes the request, whose headers may contain secrets.
    """
    if match.paths and not any(path_matches(pattern, path) for pattern in match.paths):
        return f"the path is not {' or '.join(match.paths)}"
    if match.methods and method not in match.methods:
        return f"the method is not {' or '.join(match.methods)}"
    if match.hosts and not any(_host_matches(pattern, host) for pattern in match.hosts):
        return f"the host is not {' or '.join(match.hosts)}"
    for name, wanted in match.headers:
        values = _values(raw_headers, name)
        if not values:
            return f"there is no header {name}"
        if not any(_value_matches(wanted, value) for value in values):
            return f"the header {name} is not {wanted}"
    return None


def covers(earlier: Match, later: Match) -> bool:
    """Whether *earlier* takes every request that *later* would take.

    If so, a route with *later* is never reached after one with *earlier*. True
    is certain. False may be wrong where several patterns of *earlier* cover one
    of *later* between them, but none does alone.
    """
    return (
        _lie_within(earlier.paths, later.paths, path_covers)
        and _lie_within(earlier.methods, later.methods, eq)
        # A host pattern read as a name is matched by just those patterns that cover it.
        and _lie_within(earlier.hosts, later.hosts, _host_matches)
        and all(
            any(name == other and _value_covers(wide, value) for other, value in later.headers)
            for name, wide in earlier.headers
        )
    )


class RouteTable:
    """All matches of a file, indexed so that few of them are checked for a request.

    A first index goes by host and by the first header condition with a whole value, so
    that neither a thousand host names nor a thousand tenants are tried one by one. Each of
    its entries is a path index that gives the few routes that can match, in the order of
    the file; only their methods and remaining headers are checked one by one.
    """

    def __init__(self, matches: tuple[Match, ...]) -> None:
        conditions: list[tuple[frozenset[str], tuple[_Header, ...]] | None] = []
        patterns: dict[tuple[str | None, _Header | None], list[tuple[str, int]]] = {}
        for number, match in enumerate(matches):
            whole = next((header for header in match.headers if header[1][-1:] != "*"), None)
            # The first index has checked the host and this header.
            others = tuple(header for header in match.headers if header != whole)
            conditions.append(
                (frozenset(match.methods), others) if match.methods or others else None
            )
            for host in match.hosts or (None,):
                entry = patterns.setdefault((host, whole), [])
                entry += [(path, number) for path in match.paths or (ANY_PATH,)]
        self._conditions = tuple(conditions)
        certain = frozenset(number for number, left in enumerate(conditions) if left is None)
        self._indexes = {key: PathIndex(entry, certain) for key, entry in patterns.items()}
        # speed: same as what _candidates() finds where no match has a host or a header, held by
        # tests/policy/routing/test_match.py; saves 5 of 13 calls
        self._only_index = self._indexes.get((None, None)) if len(self._indexes) == 1 else None
        self._header_names = frozenset(header[0].encode() for _, header in patterns if header)
        self._host_dots = max(
            (host.count(".") for host, _ in patterns if host and host.startswith("*.")), default=0
        )

    def find(self, method: str, host: str, path: str, raw_headers: RawHeaders) -> int:
        """Return the number of the first match that takes this request, or -1.

        *host* is in lower case, without port and final dot; *path* is raw, as
        received, without the query.
        """
        index = self._only_index
        for number in (
            index.candidates(path)
            if index is not None
            else self._candidates(host, path, raw_headers)
        ):
            conditions = self._conditions[number]
            if conditions is None:
                return number
            methods, headers = conditions
            if (not methods or method in methods) and (
                not headers or _has_headers(raw_headers, headers)
            ):
                return number
        return -1

    def _candidates(self, host: str, path: str, raw_headers: RawHeaders) -> list[int]:
        hosts: list[str | None] = [None, host]
        # `*.b.c` and `*.c` for a.b.c, as far up as any pattern goes.
        dot = len(host)
        for _ in range(self._host_dots):
            dot = host.rfind(".", 0, dot)
            if dot < 1:
                break
            hosts.append(f"*{host[dot:]}")
        headers: set[_Header | None] = {None}
        if self._header_names:
            headers.update(
                (name.lower().decode(), value.decode("latin-1"))
                for name, value in raw_headers
                if name.lower() in self._header_names
            )
        found: list[int] = []
        for pattern in hosts:
            for header in headers:
                index = self._indexes.get((pattern, header))
                if index is not None:
                    found += index.candidates(path)
        found.sort()
        return found


def _host_matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) >= len(pattern)
    return host == pattern


def _value_matches(wanted: str, value: str) -> bool:
    return value.startswith(wanted[:-1]) if wanted.endswith("*") else value == wanted


def _value_covers(wide: str, narrow: str) -> bool:
    if not wide.endswith("*"):
        return wide == narrow
    return narrow.removesuffix("*").startswith(wide[:-1])


def _values(raw_headers: RawHeaders, name: str) -> list[str]:
    wanted = name.encode()
    return [value.decode("latin-1") for field, value in raw_headers if field.lower() == wanted]


def _has_headers(raw_headers: RawHeaders, headers: tuple[_Header, ...]) -> bool:
    return all(
        any(_value_matches(wanted, value) for value in _values(raw_headers, name))
        for name, wanted in headers
    )


def _lie_within(
    wide: tuple[str, ...], narrow: tuple[str, ...], covers_one: Callable[[str, str], bool]
) -> bool:
    """Whether each of *narrow* is covered by one of *wide*; an empty *wide* allows all."""
    if not wide:
        return True
    return bool(narrow) and all(any(covers_one(one, each) for one in wide) for each in narrow)
