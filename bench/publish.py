"""The figures in the pages, made from the run that is published, so that they cannot drift apart.

docs/explanation/performance.md has all of them, between ``<!-- bench -->`` and ``<!-- end of bench
-->``; README.md has three ratios, between ``<!-- ratios -->`` and ``<!-- end of ratios -->``. After
a full ``make bench``::

    .venv/bin/python -m bench.publish --publish     # quote that run from now on
    make generate                                   # write the pages again, after a change here
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import quotes
from bench.processes import ROOT
from bench.report import bars, markdown, missing
from bench.results import FOLDER, PUBLISHED, keep, read, text_of

README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "explanation" / "performance.md"


def section(content: dict[str, Any]) -> str:
    """What docs/explanation/performance.md says of a run."""
    run = quotes.Run(content)
    return "\n".join(
        (
            _paragraph(quotes.how(content)),
            quotes.peers(run),
            _paragraph(quotes.reading(run)),
            *_left_out(content),
            "### What was promised\n",
            bars(content["bars"]),
            "### What a policy costs\n",
            quotes.costs(run),
            _paragraph(" ".join(quotes.more_costs(run))),
            "### What one core and one Redis carry\n",
            _paragraph(" ".join(quotes.capacity(run))),
        )
    )


def _left_out(content: dict[str, Any]) -> Iterator[str]:
    if content["left_out"]:
        yield "\n".join(missing(content["left_out"])) + "\n"


def with_section(text: str, content: dict[str, Any]) -> str:
    """*text* with the section as *content* has it; it must have a place for it."""
    return _with(text, "bench", section(content))


def with_ratios(text: str, content: dict[str, Any]) -> str:
    """*text* with three ratios of *content*; it must have a place for them."""
    run = quotes.Run(content)
    return _with(text, "ratios", f"{quotes.ratios(run)}\n{_paragraph(quotes.other_ratios(run))}")


def _with(text: str, mark: str, made: str) -> str:
    place = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end of {mark} -->)", re.DOTALL)
    written, places = place.subn(lambda _: made, text)
    if places != 1:
        raise ValueError(f"{places} places are marked with <!-- {mark} -->, there must be one")
    return written


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False, break_long_words=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what the pages quote."""
    parser = argparse.ArgumentParser(prog="python -m bench.publish", description=main.__doc__)
    parser.add_argument(
        "--publish",
        type=Path,
        nargs="?",
        const=FOLDER / "latest.json",
        metavar="JSON",
        help="quote this run (default: the last full one)",
    )
    options = parser.parse_args(arguments)
    content = read(options.publish or PUBLISHED)
    if not content["complete"]:
        print("bench: that run was broken off, and is not for others to read", file=sys.stderr)
        return 1
    keep(PUBLISHED, text_of(content))
    keep(PUBLISHED.with_suffix(".md"), markdown(content))
    PERFORMANCE.write_text(with_section(PERFORMANCE.read_text(), content))
    README.write_text(with_ratios(README.read_text(), content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
