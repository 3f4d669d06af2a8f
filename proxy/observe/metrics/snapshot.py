"""All the numbers of a process at one moment, for a scrape, for ``/status`` and for a supervisor.

A snapshot has a value for every :class:`MetricSource`. What the sources are, and how each is merged
over several workers, is listed in :mod:`proxy.observe.metrics.families`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar, cast

ThrottleName = tuple[str, str]
"""The scope of a throttle (``route`` or ``upstream``) and the name of its route or upstream."""

ValueT = TypeVar("ValueT")

Reading = tuple[str, Any]
"""The name of a source, and its value in one process."""


@dataclass(frozen=True, eq=False)
class MetricSource(Generic[ValueT]):
    """Something that each process knows, and the rule that makes one value of several."""

    name: str
    _: KW_ONLY
    merge: Callable[[Sequence[ValueT]], ValueT]
    nothing: Callable[[], ValueT]
    """Makes the value of a process that has not said any."""
    outlives: bool = False
    """Whether the last value stays in the sum when the process has ended."""

    def reading(self, value: ValueT) -> Reading:
        """Return *value* as the part of a snapshot that it is."""
        return self.name, value

    def after_exit(self, last: ValueT) -> ValueT:
        """Return what stays of the *last* value of a process that has ended."""
        return last if self.outlives else self.nothing()

    def drop_absent(self, past: ValueT, present: ValueT) -> ValueT:  # noqa: ARG002 - for subclasses
        """Return *past* without the series that *present* does not have: a reload dropped those."""
        return past


class ProcessSnapshot:
    """One moment of one process, or of several."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        """*values* are those of the sources that say anything, by their names."""
        self._values = values

    def __getitem__(self, source: MetricSource[ValueT]) -> ValueT:
        if source.name not in self._values:
            return source.nothing()
        return cast("ValueT", self._values[source.name])
