"""The slowest tests of a run: ``python -m tests.support.slowest REPORT…`` prints them.

The reports are those of pytest's ``--junitxml``. ``make test`` has one for each of its parts.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

COUNT = 20


def slowest(reports: Iterable[Path], count: int = COUNT) -> list[tuple[float, str]]:
    """Return seconds and name of the *count* slowest tests, set-up and tear-down included."""
    found = [
        (float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}")
        for report in reports
        for case in ET.parse(report).iter("testcase")  # noqa: S314 - pytest has just written it
    ]
    return sorted(found, reverse=True)[:count]


def main(reports: list[Path]) -> None:
    """Print them."""
    found = slowest(reports)
    sys.stdout.write(f"the {len(found)} slowest tests, in seconds:\n")
    sys.stdout.writelines(f"{seconds:6.2f}  {name}\n" for seconds, name in found)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
