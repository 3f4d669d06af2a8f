"""What pages quote of a run: its tables and sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cases import ENVOY, SUBJECT, TWIN
from bench.figures import METRICS
from bench.report import table

COLUMNS = {
    SUBJECT: "Holdfast",
    ENVOY: "Envoy",
    "nginx": "nginx",
    "haproxy": "HAProxy",
    "traefik": "Traefik",
    "caddy": "Caddy",
}

ROWS = (
    ("small GET, CPU", "get", "cpu"),
    ("POST of 1 KiB, CPU", "post", "cpu"),
    ("1 MiB response, CPU per MiB", "large", "cpu_mib"),
    ("100 MiB response, CPU per MiB", "huge-response", "cpu_mib"),
    ("1 MiB upload, CPU per MiB", "upload", "cpu_mib"),
    ("100 MiB upload, CPU per MiB", "huge-upload", "cpu_mib"),
    ("GET, 1 in 10 fails upstream and is retried, CPU", "failing", "cpu"),
    ("one caller, p50", "single", "p50"),
    ("one caller, p99", "single", "p99"),
    ("half load, p50", "half", "p50"),
    ("half load, p99", "half", "p99"),
    ("full load, p50", "get", "p50"),
    ("full load, p99", "get", "p99"),
    ("full load, requests per second", "get", "per_second"),
    ("start to first answer", "start", "seconds"),
    ("memory after the start", "start", "rss"),
    ("memory under full load", "get", "rss"),
    ("memory per idle connection", "idle", "kib_each"),
)
"""What the table shows: words, case and metric."""

COSTS = (
    ("retries, never needed", "holdfast-retry", "holdfast"),
    ("a throttle that never waits", "holdfast-throttle", "holdfast"),
    ("both", SUBJECT, "holdfast"),
    (
        "both, idempotency, dead letters, fallback, breaker, the upstream's throttle",
        "holdfast-everything",
        "holdfast",
    ),
)
"""Words, and whose figures are divided by whose."""

KEYED = (("memory", "keyed-memory"), ("sqlite", "keyed-sqlite"), ("Redis", "keyed-redis"))

NOTHING = "not measured"


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of a run, by case; None where it has none."""

    content: dict[str, Any]

    def median(self, case: str, contender: str, metric: str) -> float | None:
        contenders = self.content["cases"].get(case, {}).get("contenders", {})
        value: float | None = contenders.get(contender, {}).get("medians", {}).get(metric)
        return value

    def ratio(self, case: str, of: str, to: str, metric: str = "cpu") -> dict[str, float] | None:
        for one in self.content["cases"].get(case, {}).get("ratios", ()):
            if (one["of"], one["to"], one["metric"]) == (of, to, metric):
                found: dict[str, float] = one
                return found
        return None


def how(content: dict[str, Any]) -> str:
    """How it was measured, in one paragraph."""
    plan, machine, versions = content["plan"], content["machine"], content["versions"]
    peers = ", ".join(
        f"{title} {versions[name]}"
        for name, title in {"envoy": COLUMNS[ENVOY], **COLUMNS}.items()
        if name in versions
    )
    return (
        f"Medians of {plan['rounds']} interleaved rounds of twice {plan['seconds']:g} s on"
        f" {content['at'][:10]}, on {machine['cores']} cores ({machine['cpu']}) with a load of"
        f" {machine['load_before']:g} before, Python {versions['python']}. Holdfast has retries, a"
        f" throttle and metrics on; so have {peers}, where they can (Caddy has no rate limit). Each"
        " has one core, the load the other; nginx is the upstream. In brackets: Holdfast's figure"
        " divided by the peer's, the median of the ratios within a round; A/A is that of two"
        " instances of Holdfast, and so the noise."
    )


def peers(run: Run) -> str:
    """Holdfast and its peers, side by side."""
    columns = [name for name in COLUMNS if _takes_part(run, name)]
    rows = [["", *(COLUMNS[name] for name in columns), "A/A"]]
    for words, case, metric in ROWS:
        cells = [_cell(run, case, name, metric) for name in columns]
        twins = run.ratio(case, SUBJECT, TWIN, metric)
        rows.append([words, *cells, "" if twins is None else f"{twins['median']:.2f}"])
    return table(rows)


def _takes_part(run: Run, name: str) -> bool:
    return any(run.median(case, name, metric) is not None for _, case, metric in ROWS)


def _cell(run: Run, case: str, name: str, metric: str) -> str:
    value = run.median(case, name, metric)
    if value is None:
        return NOTHING
    ratio = run.ratio(case, SUBJECT, name, metric)
    return _figure(metric, value) + ("" if ratio is None else f" ({ratio['median']:.2f})")


def _figure(metric: str, value: float) -> str:
    kind = METRICS[metric]
    if kind.unit == "requests/s":
        return f"{value:,.0f}"
    if kind.unit == "µs" and value >= 10_000:
        return f"{value / 1000:,.0f} ms"
    return kind.text(value) if value < 10 or kind.unit == "s" else f"{value:,.0f} {kind.unit}"


def reading(run: Run) -> str:
    """What the words of that table mean."""
    late, late_p99 = (run.median("half", SUBJECT, one) for one in ("late", "late_p99"))
    error = (
        ""
        if late is None or late_p99 is None
        else f" Its own lateness, {late:.0f} µs (p99 {late_p99:.0f} µs), is part of the figures."
    )
    return (
        "One caller and full load (64 connections, closed loop) are measured by wrk. Half load is"
        " half of what closed loops of that proxy brought (the median of five), sent at fixed"
        " times by an open-loop tool (`bench/loads/pacer.py`) that counts from when a request was"
        f" due.{error}"
    )


def costs(run: Run) -> str:
    """What it costs to switch something on, as a multiple."""
    base = [run.median(f"policies-{method}", "holdfast", "cpu") for method in ("get", "post")]
    rows = [
        ["CPU per request", "small GET", "POST of 1 KiB"],
        ["no policy", *(NOTHING if value is None else f"{value:.0f} µs" for value in base)],
    ]
    for words, of, to in COSTS:
        rows.append([words, *(_times(run, f"policies-{one}", of, to) for one in ("get", "post"))])
    for words, case in KEYED:
        rows.append(
            [f"a new key with each POST, in {words}", "", _times(run, case, "keyed", "plain")]
        )
    rows.append(
        [
            "a throttle in Redis against one in memory",
            _times(run, "redis", "holdfast-redis", SUBJECT),
            "",
        ]
    )
    rows.append(
        [
            "the last of 1,000 routes against the last of 10",
            _times(run, "routes", "holdfast-1000-routes", "holdfast-10-routes"),
            "",
        ]
    )
    return table(rows)


def _times(run: Run, case: str, of: str, to: str) -> str:
    found = run.ratio(case, of, to)
    if found is None:
        return NOTHING
    return f"{found['median']:.2f} times ({found['low']:.2f} to {found['high']:.2f})"


def more_costs(run: Run) -> Iterator[str]:
    """What is to be said of that table, one sentence each."""
    yield (
        "A key's cost is that of the same POST at the same proxy without a key. In brackets: the"
        " lowest and the highest of all rounds."
    )
    bare = run.ratio("bare", "holdfast", "envoy")
    if bare is not None:
        times = f"{bare['median']:.2f} times Envoy's CPU"
        yield f"Without any policy on either side a GET costs {times}."


def capacity(run: Run) -> Iterator[str]:
    """By arithmetic: a second has a million microseconds."""
    cores = [
        (words, value)
        for words, case, contender in (
            ("bare GETs", "policies-get", "holdfast"),
            ("GETs with retries and a throttle", "get", SUBJECT),
            ("POSTs of 1 KiB with both", "post", SUBJECT),
            ("POSTs with a key in memory", "keyed-memory", "keyed"),
        )
        if (value := run.median(case, contender, "cpu")) is not None
    ]
    if cores:
        yield "A core that does nothing else carries, per second, 1,000,000 µs divided by the CPU"
        yield f"of one request: {_list([f'{_carried(value)} {words}' for words, value in cores])}."
    stores = [
        (words, value)
        for words, case, contender in (
            ("a request under a shared throttle", "redis", "holdfast-redis"),
            ("a POST with a key (a claim and a result)", "keyed-redis", "keyed"),
        )
        if (value := run.median(case, contender, "store_cpu")) is not None
    ]
    if stores:
        costs = [
            f"{value:.1f} µs on {words}, and so carries {_carried(value)} of them per second"
            for words, value in stores
        ]
        yield f"A Redis, which uses one core, spends {_list(costs)}, from all instances together."


def _carried(microseconds: float) -> str:
    """Requests per second, to two digits: more would be false precision."""
    return f"{float(f'{1e6 / microseconds:.2g}'):,.0f}"


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def ratios(run: Run) -> str:
    """What it costs, as three ratios."""
    stores = ", ".join(f"in {name}" for name, _ in KEYED)
    rows = [
        ["what, with retries and a throttle on", "times"],
        ["CPU of a small GET, compared with Envoy", _ratio(run, "get", SUBJECT, ENVOY)],
        [
            "median latency of one caller, compared with Envoy",
            _ratio(run, "single", SUBJECT, ENVOY, "p50"),
        ],
        [
            f"CPU of a POST with a new idempotency key, compared with one without: {stores}",
            ", ".join(_ratio(run, case, "keyed", "plain") for _, case in KEYED),
        ],
    ]
    return table(rows)


def other_ratios(run: Run) -> str:
    """Where others cost less, and what one core carries."""
    lean = [
        f"{COLUMNS[peer]} takes {1 / found['median']:.0%}"
        for peer in ("nginx", "haproxy")
        if (found := run.ratio("get", SUBJECT, peer)) is not None
    ]
    sentences = [f"For a small GET {_list(lean)} of Holdfast's CPU."] if lean else []
    upload = _ratio(run, "upload", SUBJECT, ENVOY, "cpu_mib")
    sentences.append(f"An upload of 1 MiB takes {upload} times Envoy's CPU.")
    slowest = run.ratio("get", SUBJECT, ENVOY, "p99")
    if slowest is not None:
        sentences.append(f"At full load Holdfast's p99 is {slowest['median']:.2f} times Envoy's.")
    carried = run.median("get", SUBJECT, "cpu")
    if carried is not None:
        sentences.append(f"One core carries some {_carried(carried)} such GETs per second.")
    return " ".join(sentences)


def _ratio(run: Run, case: str, of: str, to: str, metric: str = "cpu") -> str:
    found = run.ratio(case, of, to, metric)
    return NOTHING if found is None else f"{found['median']:.2f}"
