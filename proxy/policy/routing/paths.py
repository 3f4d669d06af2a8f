"""Path patterns: which paths they match, and an index that finds the patterns for a path.

A path and a pattern are lists of segments, split at each slash. In a pattern ``*``
stands for one non-empty segment, and a final ``/**`` for the rest, even if there is
none. Segments are compared as received: a percent-encoded letter is not that letter,
and upper and lower case differ.
"""

from collections.abc import Iterable, Iterator

_ONE = "*"
_REST = "/**"
ANY_PATH = _REST
"""The pattern that matches every path."""


def path_matches(pattern: str, path: str) -> bool:
    """Whether *pattern* matches *path* (raw, without its query)."""
    wanted = pattern.removesuffix(_REST).split("/")
    segments = path.split("/")
    if pattern.endswith(_REST):
        segments = segments[: len(wanted)]
    return len(wanted) == len(segments) and all(
        segment == want or (want == _ONE and segment != "")
        for want, segment in zip(wanted, segments, strict=True)
    )


def path_covers(wide: str, narrow: str) -> bool:
    """Whether the pattern *wide* matches every path that *narrow* matches."""
    if narrow.endswith(_REST) and not wide.endswith(_REST):
        return False
    # Read as a path, a pattern's `*` is a segment like any other: it is matched
    # by `*` and by nothing else. What `/**` adds only ever comes after.
    return path_matches(wide, narrow.removesuffix(_REST))


class _Node:
    """A node of the tree: all patterns that begin with the same segments."""

    __slots__ = ("below", "children", "ending", "here", "rest", "wildcard")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.wildcard: _Node | None = None
        """The child for the segment ``*``."""
        self.ending: list[int] = []
        """Patterns that end here."""
        self.rest: list[int] = []
        """Patterns that end here with ``/**``."""
        # Filled in once all patterns are added:
        self.here: tuple[int, ...] = ()
        """Matches of a path that ends here."""
        self.below: tuple[int, ...] = ()
        """Matches of a path that goes on where no pattern follows."""

    def child(self, segment: str) -> "_Node":
        if segment != _ONE:
            return self.children.setdefault(segment, _Node())
        if self.wildcard is None:
            self.wildcard = _Node()
        return self.wildcard


class PathIndex:
    """Numbered patterns in a tree of their segments.

    A look-up takes one step for each segment of the path, up to the deepest
    pattern, however many patterns there are; a path that a pattern spells out in full
    takes a single step. Only where a segment is named by one pattern and is ``*``
    in another that begins alike, both children are followed.
    """

    def __init__(self, patterns: Iterable[tuple[str, int]], certain: frozenset[int]) -> None:
        """Index *patterns*; the routes numbered in *certain* have no condition but their path."""
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
        self._precompute(certain)
        self._any_path = self._root.child("").below
        self._literal: dict[str, tuple[int, ...]] = {}
        # Filled last: until then candidates() knows the wildcard patterns only.
        self._literal = {
            path: _in_order(numbers.union(self.candidates(path)), certain)
            for path, numbers in literal.items()
        }

    def candidates(self, path: str) -> tuple[int, ...]:
        """Return the numbers of the patterns that match *path*, in order.

        Those after the first certain one are left out: it takes the request.
        """
        found = self._literal.get(path)
        if found is not None:
            return found
        if self._depth <= 1:  # `/**` is the only wildcard, if there is any
            return self._any_path
        node = self._root
        # A path of ten thousand slashes is split no finer than the patterns are.
        segments = iter(path.split("/", self._depth))
        for segment in segments:
            following = node.children.get(segment)
            if node.wildcard is not None and segment:
                if following is not None:
                    return _candidates_of_all([following, node.wildcard], segments)
                following = node.wildcard
            if following is None:
                return node.below
            node = following
        return node.here

    def _precompute(self, certain: frozenset[int]) -> None:
        """Pass each node's ``/**`` down to its children, so that a look-up ends at one node."""
        waiting: list[tuple[_Node, tuple[int, ...]]] = [(self._root, ())]
        while waiting:
            node, inherited = waiting.pop()
            node.below = _in_order({*inherited, *node.rest}, certain)
            node.here = _in_order({*node.below, *node.ending}, certain)
            children = [*node.children.values()]
            if node.wildcard is not None:
                children.append(node.wildcard)
            waiting += [(child, node.below) for child in children]


def _candidates_of_all(nodes: list[_Node], segments: Iterator[str]) -> tuple[int, ...]:
    found: list[int] = []
    for segment in segments:
        reached = []
        for node in nodes:
            named = node.children.get(segment)
            wildcard = node.wildcard if segment else None
            if named is not None:
                reached.append(named)
            if wildcard is not None:
                reached.append(wildcard)
            elif named is None:
                found += node.below
        nodes = reached
    for node in nodes:
        found += node.here
    return tuple(sorted(found))


def _in_order(numbers: set[int], certain: frozenset[int]) -> tuple[int, ...]:
    last = min(numbers & certain, default=None)
    return tuple(sorted(n for n in numbers if last is None or n <= last))
