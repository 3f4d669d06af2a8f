"""The tables for people, made from what :mod:`bench.results` keeps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.figures import METRICS, Ratio

Content = dict[str, Any]


def markdown(content: Content) -> str:
    """The whole run: what was promised, every case, and what is missing."""
    return "\n".join(_paragraphs(content))


def table(rows: Sequence[Sequence[str]]) -> str:
    """As Markdown; the first row is the heading."""
    heading, *others = rows
    return "\n".join(_row(row) for row in (heading, ["---"] * len(heading), *others)) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _paragraphs(content: Content) -> Iterator[str]:
    yield heading(content) + "\n"
    yield "## Bars\n"
    yield bars(content["bars"])
    for case in content["cases"].values():
        yield f"## {case['title'][0].upper()}{case['title'][1:]}\n"
        yield case_table(case)
    if content["left_out"]:
        yield "## Left out\n"
        yield "\n".join(missing(content["left_out"])) + "\n"


def heading(content: Content) -> str:
    """How the run was made, in a few sentences."""
    plan, machine = content["plan"], content["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    broken_off = "" if content["complete"] else " **The run was broken off: cases are missing.**"
    return (
        f"{content['at']}, commit {content['commit']}: {plan['rounds']} interleaved rounds of twice"
        f" {plan['seconds']:g} s, {content['took_seconds']} s in all. Ratios are medians of those"
        f" within a round, with the lowest and the highest.{broken_off}\n\n"
        f"{machine['cores']} cores ({machine['cpu']}), load {machine['load_before']} before."
        f" {versions}."
    )


def bars(judgements: dict[str, Content]) -> str:
    """Every bar and what was found."""
    rows = [["what", "found", "bar", "met"]]
    for bar in judgements.values():
        limit = (
            f"at most {bar['most']:g}" if bar["most"] is not None else f"at least {bar['least']:g}"
        )
        figure = "" if bar["figure"] is None else f"{bar['figure']:.3g}"
        met = {True: "yes", False: "**no**", None: f"unknown: {bar['why']}"}[bar["met"]]
        rows.append([bar["what"], figure, limit, met])
    return table(rows)


def case_table(case: Content) -> str:
    """Figures of every contender, then the ratios."""
    if not case["contenders"]:
        return "Nobody could take part.\n"
    metrics = [
        name
        for name in case["metrics"]
        if any(name in one["medians"] for one in case["contenders"].values())
    ]
    rows = [["", *(METRICS[name].title for name in metrics)]]
    for name, contender in case["contenders"].items():
        found = contender["medians"]
        cells = [METRICS[one].text(found[one]) if one in found else "" for one in metrics]
        rows.append([name, *cells])
    ratios = {(one["of"], one["to"], one["metric"]): one for one in case["ratios"]}
    for above, below in dict.fromkeys((one["of"], one["to"]) for one in case["ratios"]):
        found = [ratios.get((above, below, metric)) for metric in metrics]
        rows.append([f"*{above} / {below}*", *(_ratio(one) for one in found)])
    return table(rows)


def _ratio(one: Content | None) -> str:
    return "" if one is None else str(Ratio(one["median"], one["low"], one["high"]))


def missing(left_out: Sequence[dict[str, str]]) -> Iterator[str]:
    """Who was left out of which cases, and why: one line for each reason."""
    cases: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        cases.setdefault((one["contender"], one["why"]), []).append(one["case"])
    for (contender, reason), names in cases.items():
        yield f"- {contender} is missing from {', '.join(names)}: {reason}"
