"""Path patterns: what they take, and an index that finds those that take a path.

A path and a pattern are lists of segments, cut at each slash. In a pattern ``*``
stands for one segment with something in it, and a final ``/**`` for the rest,
even if there is none. Segments are compared as received: a percent-encoded
letter is not that letter, and upper and lower case differ.
"""

from collections.abc import Iterable, Iterator

_ONE = "*"
_REST = "/**"
ANY_PATH = _REST
"""The pattern that takes every path: it is all rest."""


def path_matches(pattern: str, path: str) -> bool:
    """Whether *pattern* takes *path* (raw, without its query)."""
    wanted = pattern.removesuffix(_REST).split("/")
    segments = path.split("/")
    if pattern.endswith(_REST):
        segments = segments[: len(wanted)]
    return len(wanted) == len(segments) and all(
        segment == want or (want == _ONE and segment != "")
        for want, segment in zip(wanted, segments, strict=True)
    )


def path_covers(wide: str, narrow: str) -> bool:
    """Whether the pattern *wide* takes every path that *narrow* takes."""
    if narrow.endswith(_REST) and not wide.endswith(_REST):
        return False
    # Read as a path, a pattern's `*` is a segment like any other: it is taken
    # by `*` and by nothing else. What `/**` adds only ever comes behind.
    return path_matches(wide, narrow.removesuffix(_REST))


class _Node:
    """All patterns that begin with the same segments."""

    __slots__ = ("below", "children", "ending", "here", "one", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.one: _Node | None = None
        """Where ``*`` leads."""
        self.ending: list[int] = []
        """Patterns that end here."""
        self.rest: list[int] = []
        """Patterns that end here with ``/**``."""
        # What is known once all patterns are in:
        self.here: tuple[int, ...] = ()
        """Matches of a path that ends here."""
        self.below: tuple[int, ...] = ()
        """Matches of a path that goes on where no pattern follows."""

    def child(self, segment: str) -> "_Node":
        if segment != _ONE:
            return self.children.setdefault(segment, _Node())
        if self.one is None:
            self.one = _Node()
        return self.one


class PathIndex:
    """Numbered patterns, arranged by their segments.

    A look-up takes one step for each segment of the path, up to the deepest
    pattern, however many patterns there are; a path that is written out in full
    takes a single one. Only where a segment is named by one pattern and is ``*``
    in another that begins alike, both ways are followed.
    """

    __slots__ = ("_anything", "_depth", "_literal", "_root")

    def __init__(self, patterns: Iterable[tuple[str, int]], certain: frozenset[int]) -> None:
        """Index *patterns*; numbers in *certain* ask for nothing but their path."""
        self._root = _Node()
        self._depth = 0
        literal: dict[str, set[int]] = {}
        for pattern, number in patterns:
            segments = pattern.removesuffix(_REST).split("/")
            if _ONE not in segments and not pattern.endswith(_REST):
                literal.setdefault(pattern, set()).add(number)
                continue
            self._depth = max(self._depth, len(segments))
            node = self._root
            for segment in segments:
                node = node.child(segment)
            (node.rest if pattern.endswith(_REST) else node.ending).append(number)
        self._settle(certain)
        self._anything = self._root.child("").below
        self._literal: dict[str, tuple[int, ...]] = {}
        # Filled at the end: until then candidates() knows the wildcards only.
        self._literal = {
            path: _in_order(numbers.union(self.candidates(path)), certain)
            for path, numbers in literal.items()
        }

    def candidates(self, path: str) -> tuple[int, ...]:
        """Numbers of the patterns that take *path*, in order.

        Those behind the first certain one are left out: it has won by then.
        """
        found = self._literal.get(path)
        if found is not None:
            return found
        if self._depth <= 1:  # `/**` is the only wildcard, if there is any
            return self._anything
        node = self._root
        # A path of ten thousand slashes is cut no finer than the patterns are.
        segments = iter(path.split("/", self._depth))
        for segment in segments:
            following = node.children.get(segment)
            if node.one is not None and segment:
                if following is not None:
                    return _candidates_on_all_ways([following, node.one], segments)
                following = node.one
            if following is None:
                return node.below
            node = following
        return node.here

    def _settle(self, certain: frozenset[int]) -> None:
        """Hand each node's ``/**`` down, so that a look-up ends at a single node."""
        waiting: list[tuple[_Node, tuple[int, ...]]] = [(self._root, ())]
        while waiting:
            node, inherited = waiting.pop()
            node.below = _in_order({*inherited, *node.rest}, certain)
            node.here = _in_order({*node.below, *node.ending}, certain)
            children = [*node.children.values()]
            if node.one is not None:
                children.append(node.one)
            waiting += [(child, node.below) for child in children]


def _candidates_on_all_ways(nodes: list[_Node], segments: Iterator[str]) -> tuple[int, ...]:
    found: list[int] = []
    for segment in segments:
        reached = []
        for node in nodes:
            named = node.children.get(segment)
            one = node.one if segment else None
            if named is not None:
                reached.append(named)
            if one is not None:
                reached.append(one)
            elif named is None:
                found += node.below
        nodes = reached
    for node in nodes:
        found += node.here
    return tuple(sorted(found))


def _in_order(numbers: set[int], certain: frozenset[int]) -> tuple[int, ...]:
    last = min(numbers & certain, default=None)
    return tuple(sorted(n for n in numbers if last is None or n <= last))
