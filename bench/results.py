"""What a run found, as JSON: a stable shape that other programs may read.

``format``
    1. It changes when a name below changes its meaning or goes away.
``at``, ``commit``, ``took_seconds``, ``complete``
    When the run began, what was measured, how long it took, and whether it came to its end.
``machine``, ``versions``, ``plan``
    Where, of what, and how long each measurement was.
``cases``
    By name: ``title``, ``metrics`` (the first is what it is about), ``contenders`` (by name: the
    ``proxy`` that it was, ``medians`` and ``samples`` by metric, one per round, each the mean of
    two measurements: a round goes there and back) and ``ratios`` (``metric``, ``of`` whom ``to``
    whom, ``median``, ``low`` and ``high`` of the ratios within a round).
    :data:`bench.figures.METRICS` tells the unit of each metric.
``left_out``
    Who is missing from which case, and why (``case``, ``contender``, ``why``).
``repeated``
    Measurements that failed and were made again, in the same shape.
``bars``
    By name: ``what``, the ``figure`` found, ``most`` or ``least``, and whether it is ``met``; null
    if that cannot be told, and then ``why``.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from bench import machine as where
from bench.bars import BARS, Judgement, judge
from bench.case import Case
from bench.cases import CASES
from bench.figures import METRICS, medians, ratio
from bench.loads import Plan
from bench.rounds import Measured

FOLDER = Path(__file__).parent / "results"
PUBLISHED = FOLDER / "published.json"
"""The run that the pages quote. All others stay out of the repository."""

FORMAT = 1


@dataclass(slots=True)
class Results:
    """A run, as far as it has come."""

    plan: Plan
    commit: str = field(default_factory=where.commit)
    machine: dict[str, object] = field(default_factory=where.machine)
    versions: dict[str, str] = field(default_factory=where.versions)
    cases: dict[str, Measured] = field(default_factory=dict)
    complete: bool = False
    began: float = field(default_factory=time.time)

    def judgements(self) -> list[Judgement]:
        """Every bar, held against what was found."""
        return [judge(bar, self.cases.get(bar.case), self.plan) for bar in BARS]

    def content(self) -> dict[str, Any]:
        """All of it, in the shape above."""
        return {
            "format": FORMAT,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
            "commit": self.commit,
            "took_seconds": round(time.time() - self.began),
            "complete": self.complete,
            "machine": self.machine,
            "versions": self.versions,
            "plan": asdict(self.plan),
            "left_out": list(self._left_out()),
            "repeated": list(self._repeated()),
            "bars": {one.name: _bar(one) for one in self.judgements()},
            "cases": {
                case.name: _case(case, self.cases[case.name])
                for case in CASES
                if case.name in self.cases
            },
        }

    def _left_out(self) -> Iterator[dict[str, str]]:
        for case, measured in self.cases.items():
            for contender, reason in measured.left_out.items():
                yield {"case": case, "contender": contender, "why": reason}

    def _repeated(self) -> Iterator[dict[str, str]]:
        for case, measured in self.cases.items():
            for contender, reason in measured.repeated:
                yield {"case": case, "contender": contender, "why": reason}


def _case(case: Case, measured: Measured) -> dict[str, Any]:
    series = measured.series
    contenders = {one.name: one for one in case.contenders}
    return {
        "title": case.title,
        "metrics": list(case.metrics),
        "contenders": {
            name: {
                "proxy": contenders[name].proxy,
                "medians": {key: _short(value) for key, value in medians(rounds).items()},
                "samples": {
                    key: [_short(figures[key]) for figures in rounds if key in figures]
                    for key in medians(rounds)
                },
            }
            for name, rounds in series.items()
        },
        "ratios": [
            {"metric": metric, "of": above, "to": below}
            | {key: _short(value) for key, value in asdict(found).items()}
            for above, below in case.pairs
            for metric in case.metrics
            if METRICS[metric].compared
            if (found := ratio(series, metric, above, below)) is not None
        ],
    }


def _bar(judgement: Judgement) -> dict[str, Any]:
    content = asdict(judgement)
    del content["name"]
    figure = judgement.figure
    return content | {"figure": None if figure is None else _short(figure)}


def _short(value: float) -> float:
    """Four digits are more than the noise lets one believe."""
    return float(f"{value:.4g}")


def text_of(content: dict[str, Any]) -> str:
    """As JSON, with the samples of a metric on one line."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([-\d.e+,\s]+?)\s+\]", _on_one_line, text) + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return f"[{', '.join(found[1].replace(',', ' ').split())}]"


def keep(path: Path, text: str) -> None:
    """Write it down so that nobody ever sees half of it."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


def read(path: Path) -> dict[str, Any]:
    """What an earlier run has kept."""
    content = json.loads(path.read_text())
    if content["format"] != FORMAT:
        raise ValueError(f"{path} has format {content['format']}, not {FORMAT}")
    return cast("dict[str, Any]", content)
