"""Measure, print the figures beside their goals, and keep them."""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import tools
from bench.hand_off.phases import (
    FULL,
    QUICK,
    Figures,
    Size,
    fsyncs_per_second,
    measure_anchor,
    measure_backlog,
    measure_holdfast,
    measure_takeover,
)
from bench.results import FOLDER


def main() -> int:
    """Run all phases; 1 if one could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.hand_off", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under a minute")
    size = QUICK if parser.parse_args().quick else FULL
    try:
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix="hand-off-") as folder:
            content = asyncio.run(_measure(Path(folder), size))
    except tools.BenchFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    print(table(content))
    (FOLDER / "hand-off.json").write_text(json.dumps(content, indent=2) + "\n")
    return 0


async def _measure(folder: Path, size: Size) -> dict[str, Figures]:
    fsyncs = fsyncs_per_second(folder)
    content: dict[str, Figures] = {"machine": {"fsyncs_per_second": fsyncs}}
    phases: dict[str, Callable[[Path], Awaitable[Figures]]] = {
        "holdfast": lambda own: measure_holdfast(own, size, fsyncs),
        "anchor": lambda own: measure_anchor(own, size, fsyncs),
        "backlog": lambda own: measure_backlog(own, size),
        "takeover": lambda own: measure_takeover(own, size),
    }
    for name, measure in phases.items():
        own = folder / name
        own.mkdir()
        content[name] = await measure(own)
    return content


def goals(content: dict[str, Figures]) -> list[tuple[str, float, str]]:
    """What is measured, its figure, and what it should be."""
    ours, anchor = content["holdfast"], content["anchor"]
    backlog, takeover = content["backlog"], content["takeover"]
    rates = ours["accepted_per_second"] / anchor["accepted_per_second"]
    return [
        ("202 per fsync, 64 connections", ours["accepted_per_fsync"], ">= 20"),
        ("202 per second, over the anchor", rates, ">= 3"),
        ("CPU of a 202, over the anchor", _ratio(ours, anchor, "cpu_us_per_202"), "<= 0.5"),
        ("one caller, p50 in fsyncs", ours["single_p50_in_fsyncs"], "<= 1.3"),
        (
            "CPU of a delivery, over the anchor",
            _ratio(ours, anchor, "cpu_us_per_delivery"),
            "<= 0.5",
        ),
        ("due to sent, p99 in ms", ours["lag_p99_ms"], "<= 20"),
        ("backlog, MiB over empty", backlog["rss_mib_over_empty"], "<= 20"),
        ("CPU of a live GET beside it, over none", backlog["live_get_cpu_ratio"], "<= 1.03"),
        ("CPU of a delivery out of it, over a small one", backlog["take_cpu_ratio"], "<= 1.2"),
        ("takeover after kill -9, seconds", takeover["takeover_seconds"], "<= 1"),
    ]


def _ratio(ours: Figures, others: Figures, name: str) -> float:
    return ours[name] / others[name]


def table(content: dict[str, Figures]) -> str:
    """Return the figures beside their goals, in Markdown."""
    rows = [f"| {what} | {figure:.3g} | {goal} |" for what, figure, goal in goals(content)]
    return "\n".join(["| hand-off | figure | goal |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    sys.exit(main())
