"""Metrics as text, written in slices so that requests are served in between.

With 200 routes that retry, as many upstreams, and a throttle for each of them a scrape
has some 27,000 samples. In one piece nothing would be proxied for so long as they are written.

There are two formats, and they differ in little: the text format of Prometheus, and OpenMetrics,
which names a counter without its ``_total`` and has an end. They are written by hand, in a quarter
of the time that the library of Prometheus for Python takes, a tenth for OpenMetrics. A test
compares every byte with what that library writes.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from proxy.observe.metrics.families import FAMILIES
from proxy.observe.metrics.family import Family, MetricType
from proxy.observe.metrics.series import Histogram
from proxy.observe.metrics.snapshot import ProcessSnapshot

_SLICE = 200
"""Samples at a time."""
_LONGEST_PLAIN = 6
"""Digits before the point of a number that is written without an exponent, as Go does."""
_NOT_FINITE = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_ESCAPINGS = ("allow-utf-8", "underscores", "dots", "values")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")


@dataclass(frozen=True, slots=True)
class _Format:
    """What a scraper asked for."""

    content_type: str = "text/plain; version=0.0.4; charset=utf-8"
    is_open_metrics: bool = False
    has_dots: bool = False
    """Whether an underscore in a name is written as two, for a scraper whose names have dots."""

    def name(self, name: str) -> str:
        """Write the name of a metric."""
        return name.replace("_", "__") if self.has_dots else name


async def expose(snapshot: ProcessSnapshot, accept: str) -> tuple[bytes, str]:
    """Return all metrics of *snapshot* in the format that *accept* asks for, and its type."""
    form = _choose_format(accept)
    pieces: list[bytes] = []
    lines: list[str] = []
    for family in FAMILIES:
        for line in _lines(family, snapshot, form):
            lines.append(line)
            if len(lines) >= _SLICE:
                pieces.append("".join(lines).encode())
                lines.clear()
                await asyncio.sleep(0)
    if form.is_open_metrics:
        lines.append("# EOF\n")
    pieces.append("".join(lines).encode())
    return b"".join(pieces), form.content_type


def _choose_format(accept: str) -> _Format:
    """Return the first format of an Accept field that there is; else the oldest."""
    for accepted in accept.split(","):
        kind, *parameters = (part.strip() for part in accepted.split(";"))
        given = dict(part.partition("=")[::2] for part in reversed(parameters))
        version = given.get("version", "")
        escaping = given.get("escaping", "")
        if escaping not in _ESCAPINGS:
            escaping = "underscores"
        is_known = _is_version(version)
        if kind == "application/openmetrics-text" and not version:
            return _Format(f"{kind}; version=1.0.0; charset=utf-8", is_open_metrics=True)
        if kind == "application/openmetrics-text" and is_known:
            content_type = f"{kind}; version={version}; charset=utf-8; escaping={escaping}"
            return _Format(content_type, is_open_metrics=True, has_dots=escaping == "dots")
        if kind == "text/plain" and is_known:
            content_type = f"{kind}; version=1.0.0; charset=utf-8; escaping={escaping}"
            return _Format(content_type, has_dots=escaping == "dots")
    return _Format()


def _is_version(text: str) -> bool:
    """Tell whether *text* is a version from 1.0.0 on."""
    numbers = tuple(map(int, text.split("."))) if _VERSION.fullmatch(text) else ()
    return numbers >= (1, 0, 0)


def _lines(family: Family, snapshot: ProcessSnapshot, form: _Format) -> Iterator[str]:
    """Yield what is written of one family."""
    # All at once: requests that are served between two slices may add series.
    samples = list(family.samples(snapshot))
    if not samples and family.only_if_any:
        return
    name = form.name(family.name)
    shown = name
    if form.is_open_metrics and family.kind is MetricType.COUNTER:
        shown = form.name(family.name.removesuffix("_total"))
    yield f"# HELP {shown} {family.text}\n# TYPE {shown} {family.kind}\n"
    labels = tuple(label.name for label in family.all_labels)
    in_order = sorted(range(len(labels)), key=labels.__getitem__)
    before = [place for place in in_order if labels[place] < "le"]
    after = [place for place in in_order if labels[place] > "le"]
    for values, value in samples:
        if not isinstance(value, Histogram):
            text = _pairs(labels, values, in_order)
            yield f"{name}{'{' if text else ''}{text}{'}' if text else ''} {_number(value)}\n"
            continue
        first, rest = _pairs(labels, values, before), _pairs(labels, values, after)
        opened, closed = f"{first}," if first else "", f",{rest}" if rest else ""
        # Prometheus wants each bucket to include the ones below it.
        counts, total = list(accumulate(value.counts)), value.total
        for bound, count in zip(_bucket_labels(value.bounds), counts, strict=True):
            yield f'{name}{form.name("_bucket")}{{{opened}le="{bound}"{closed}}} {_number(count)}\n'
        own = f"{opened}{rest}" if rest else first
        yield f"{name}{form.name('_count')}{{{own}}} {_number(counts[-1])}\n"
        yield f"{name}{form.name('_sum')}{{{own}}} {_number(total)}\n"


def _pairs(labels: tuple[str, ...], values: tuple[str, ...], places: list[int]) -> str:
    return ",".join([f'{labels[place]}="{_escaped(values[place])}"' for place in places])


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    """Write a number as Prometheus does: always a float, with an exponent from a million on."""
    text = repr(float(value))
    point = text.find(".")
    if value > 0 and point > _LONGEST_PLAIN:
        mantissa = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{point - 1:02d}"
    return _NOT_FINITE.get(text, text)


@cache
def _bucket_labels(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(str, bounds), "+Inf")
