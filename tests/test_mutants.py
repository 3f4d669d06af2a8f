"""``make mutants``: what a run found, told so that a person can judge it."""

import sys
import time
from pathlib import Path

import pytest

from tests.mutants import Mutant, read_mutant, report, run_for

SOURCE = '''\
"""Made up."""


class Window:
    def __init__(self) -> None:
        self.size = 0

    def add(self, now: float) -> None:
        if now >= self.end:
            self.advance(
                now,
                0,
            )


async def wait(now: float) -> float:
    return now + 1
'''
COPY = '''\
"""Made up."""


class Window:
    def __init__(self) -> None:
        self.size = 0

    def xǁWindowǁadd__mutmut_orig(self, now: float) -> None:
        if now >= self.end:
            self.advance(
                now,
                0,
            )

    def xǁWindowǁadd__mutmut_1(self, now: float) -> None:
        if now > self.end:
            self.advance(
                now,
                0,
            )

    def xǁWindowǁadd__mutmut_2(self, now: float) -> None:
        if now >= self.end:
            self.advance(
                0,
            )


async def x_wait__mutmut_orig(now: float) -> float:
    return now + 1


async def x_wait__mutmut_1(now: float) -> float:
    return now - 1
'''
RESULTS = """\
    proxy.policy.window.xǁWindowǁadd__mutmut_1: survived
    proxy.policy.window.xǁWindowǁadd__mutmut_2: survived
    proxy.policy.window.xǁWindowǁadd__mutmut_3: caught by type check
    proxy.policy.window.xǁWindowǁ__repr____mutmut_1: no tests
    proxy.policy.window.xǁWindowǁ__repr____mutmut_2: no tests
    proxy.policy.window.x_wait__mutmut_2: killed
    proxy.policy.x_wait__mutmut_1: survived
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder, text in ((tmp_path, SOURCE), (tmp_path / "mutants", COPY)):
        policy = folder / "proxy" / "policy"
        policy.mkdir(parents=True)
        (policy / "window.py").write_text(text)
        (policy / "__init__.py").write_text(text)
    return tmp_path


def test_survivors_are_shown_where_they_are_and_what_they_change(root: Path) -> None:
    assert report(RESULTS, root).splitlines() == [
        "proxy/policy/window.py:9 Window.add",
        "    - if now >= self.end:",
        "    + if now > self.end:",
        "",
        "proxy/policy/window.py:11 Window.add",
        "    - now,",
        "",
        "proxy/policy/__init__.py:17 wait",
        "    - return now + 1",
        "    + return now - 1",
        "",
        "proxy/policy/window.py Window.__repr__: no test reaches it, 2 mutants",
        "7 mutants: 1 caught by type check, 1 killed, 2 no tests, 3 survived",
    ]


def test_a_run_may_find_nothing(root: Path) -> None:
    assert report("", root) == "0 mutants: "


@pytest.mark.parametrize(
    ("name", "function", "changed"),
    [
        ("xǁWindowǁ__init____mutmut_12", "Window.__init__", "xǁWindowǁ__init____mutmut_12"),
        ("xǁ_NodeǁchildÄ__mutmut_1", "_Node.childÄ", "xǁ_NodeǁchildÄ__mutmut_1"),
        ("x__in_order__mutmut_3", "_in_order", "x__in_order__mutmut_3"),
    ],
)
def test_names_of_mutants(root: Path, name: str, function: str, changed: str) -> None:
    original = changed.rstrip("0123456789") + "orig"
    assert read_mutant(f"proxy.policy.window.{name}", root) == Mutant(
        "proxy/policy/window.py", function, original, changed
    )


def test_a_name_that_mutmut_would_not_give(root: Path) -> None:
    with pytest.raises(ValueError, match=r"proxy\.policy\.window\.add"):
        read_mutant("proxy.policy.window.add", root)


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_that_ends_by_itself(status: int) -> None:
    assert run_for(60, [sys.executable, "-c", f"raise SystemExit({status})"]) == status


def test_a_command_whose_time_is_up_is_interrupted() -> None:
    started = time.monotonic()
    assert run_for(0.1, [sys.executable, "-c", "import time; time.sleep(60)"]) == 0
    assert time.monotonic() - started < 30
