"""The bars: how much Holdfast may cost at most, and whether a run showed that it costs no more."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.cases import ENVOY, SUBJECT, TWIN
from bench.figures import Series, ratio
from bench.loads import Plan
from bench.rounds import Measured

AA_TOLERANCE = 0.03


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise."""

    name: str
    what: str
    case: str
    read: Callable[[Series], float | None]
    """The figure that it is about; None if it was not measured."""
    most: float | None = None
    least: float | None = None
    needs: Callable[[Plan], bool] = lambda plan: True  # noqa: ARG005 - whatever the plan
    """Whether a run by this plan measures what the bar is about."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A bar and what a run found."""

    name: str
    what: str
    figure: float | None
    most: float | None
    least: float | None
    met: bool | None
    """None: it cannot be told."""
    why: str = ""
    """Why not."""

    def __str__(self) -> str:
        limit = f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"
        if self.met is None:
            return f"{self.what}: not measured ({self.why}); the bar is {limit}"
        return f"{self.what}: {self.figure:.3g}, the bar is {limit}"


def judge(bar: Bar, measured: Measured | None, plan: Plan) -> Judgement:
    """Hold *bar* against what the rounds of its case brought, if it was run."""
    figure = None if measured is None else bar.read(measured.series)
    reason = ""
    if measured is None:
        reason = f"case {bar.case} was not run"
    elif figure is None:
        reason = "; ".join(measured.left_out.values()) or "nobody was measured"
    elif not bar.needs(plan):
        reason = "this run sent less than the bar speaks of"
    met = None
    if figure is not None and not reason:
        met = (bar.most is None or figure <= bar.most) and (
            bar.least is None or figure >= bar.least
        )
    return Judgement(bar.name, bar.what, figure, bar.most, bar.least, met, reason)


def _ratio(metric: str, above: str, below: str) -> Callable[[Series], float | None]:
    def read(series: Series) -> float | None:
        found = ratio(series, metric, above, below)
        return None if found is None else found.median

    return read


def _apart(metric: str) -> Callable[[Series], float | None]:
    """How far the subject and its twin are apart, as a part of one."""

    def read(series: Series) -> float | None:
        found = ratio(series, metric, SUBJECT, TWIN)
        return None if found is None else abs(found.median - 1)

    return read


def _median(metric: str, contender: str = SUBJECT) -> Callable[[Series], float | None]:
    def read(series: Series) -> float | None:
        values = [figures[metric] for figures in series.get(contender, ()) if metric in figures]
        return median(values) if values else None

    return read


def _most(metric: str) -> Callable[[Series], float | None]:
    def read(series: Series) -> float | None:
        return max((figures[metric] for figures in series.get(SUBJECT, ())), default=None)

    return read


def _all_idle(plan: Plan) -> bool:
    return plan.idle_connections >= 10_000


def _whole_stall(plan: Plan) -> bool:
    return plan.stall_mib >= 1024 and plan.stall_seconds >= 5


_OURS = _ratio("cpu", SUBJECT, ENVOY)
_OURS_TLS = _ratio("cpu", "holdfast-tls", "envoy-tls")

BARS = (
    Bar("get", "CPU per small GET, times Envoy's", "get", _OURS, most=1.0),
    Bar("post", "CPU per POST of 1 KiB, times Envoy's", "post", _OURS, most=1.0),
    Bar(
        "single",
        "one caller's median latency, times Envoy's",
        "single",
        _ratio("p50", SUBJECT, ENVOY),
        most=1.0,
    ),
    Bar("large", "CPU per 1 MiB response, times Envoy's", "large", _OURS, most=1.2),
    Bar("tls-get", "CPU per small GET, TLS upstream, times Envoy's", "tls-get", _OURS_TLS, 1.3),
    Bar("tls-post", "CPU per POST, TLS upstream, times Envoy's", "tls-post", _OURS_TLS, 1.3),
    Bar(
        "tls-single",
        "one caller's median latency, TLS upstream, times Envoy's",
        "tls-single",
        _ratio("p50", "holdfast-tls", "envoy-tls"),
        most=1.3,
    ),
    Bar(
        "tls-large",
        "CPU per 1 MiB response, TLS upstream, times Envoy's",
        "tls-large",
        _OURS_TLS,
        most=1.3,
    ),
    Bar(
        "keyed",
        "CPU per POST with a key in memory, times a plain one's",
        "keyed-memory",
        _ratio("cpu", "keyed", "plain"),
        most=1.5,
    ),
    Bar(
        "stall",
        "MiB above idle while 1 GiB streams past one who stalls for 5 s",
        "stall",
        _most("above_idle"),
        most=30,
        needs=_whole_stall,
    ),
    Bar(
        "idle",
        "MiB with 10,000 idle connections",
        "idle",
        _median("rss"),
        most=300,
        needs=_all_idle,
    ),
    Bar(
        "workers",
        "CPU per request with two workers, times one's",
        "workers",
        _ratio("cpu", "holdfast-2-workers", "holdfast-1-worker"),
        most=1.1,
    ),
    Bar(
        "workers-share",
        "the lesser of two workers' share of the work",
        "workers",
        _median("share", "holdfast-2-workers"),
        least=0.4,
    ),
    Bar("start", "seconds from start to first answer", "start", _median("seconds"), most=1.0),
    Bar(
        "aa-get",
        "CPU per small GET of two instances of one build, apart",
        "get",
        _apart("cpu"),
        most=AA_TOLERANCE,
    ),
    Bar(
        "aa-post",
        "CPU per POST of two instances of one build, apart",
        "post",
        _apart("cpu"),
        most=AA_TOLERANCE,
    ),
)
