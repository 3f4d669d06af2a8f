"""The table of metrics in docs/reference/metrics.md, made from the rows of ``families.py``.

It stands between ``<!-- metrics -->`` and ``<!-- end of metrics -->``. After a change of a row, run
``make generate``.
"""

import re
from collections.abc import Iterator

from proxy.observe.metrics.families import FAMILIES
from proxy.observe.metrics.family import Label, MetricType
from proxy.stores import redis, sqlite

_TABLE = re.compile(r"(?<=<!-- metrics -->\n).*?(?=<!-- end of metrics -->)", re.DOTALL)

_OF_STORES = {"operation": tuple(dict.fromkeys((*redis.OPERATIONS, *sqlite.OPERATIONS)))}
"""Labels whose values the stores have."""


def with_metrics(text: str) -> str:
    """*text* with the table as the rows are now."""
    rows = ("| metric | type | labels | meaning |", "|---|---|---|---|", *_rows(), "", *_buckets())
    return _TABLE.sub(lambda _: "\n".join(rows), text)


def _rows() -> Iterator[str]:
    """A row for each metric that is ours; values of a label stand where it first occurs."""
    seen: set[Label] = set()
    for family in FAMILIES:
        if not family.name.startswith("holdfast_"):
            continue
        labels = [_label(label, is_new=label not in seen) for label in family.all_labels]
        seen |= {*family.all_labels}
        cells = (f"`{family.name}`", family.kind, ", ".join(labels), family.page or family.text)
        yield f"| {' | '.join(cells)} |"


def _buckets() -> Iterator[str]:
    """A row for each set of upper bounds, with the histograms that have it."""
    bounds: dict[tuple[float, ...], list[str]] = {}
    for family in FAMILIES:
        if family.kind is MetricType.HISTOGRAM:
            bounds.setdefault(tuple(getattr(family, "bounds", ())), []).append(f"`{family.name}`")
    yield "| histograms | upper bounds of their buckets, in seconds |"
    yield "|---|---|"
    for limits, names in bounds.items():
        yield f"| {', '.join(names)} | {', '.join(f'{limit:g}' for limit in limits)} |"
    yield ""


def _label(label: Label, *, is_new: bool) -> str:
    values = label.values or _OF_STORES.get(label.name, ())
    return f"`{label.name}` ({', '.join(values)})" if values and is_new else f"`{label.name}`"
