"""A file of ``config/designs``: as it stands, and at a test's pace.

What the file says, delays of seconds and all, is asked of the pure functions of
the policy. For walks over real sockets the same file runs with a second one laid
over it, which leads to scripted upstreams and makes the delays short.
"""

import math
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from textwrap import dedent

from proxy.config import load
from proxy.policy.attempt import RetryDelay
from proxy.policy.retry.verdict import AttemptResult, RetryRules, Situation
from proxy.policy.settings import RetrySettings, RouteSettings
from tests.support import RunningProxy, running
from tests.support.clock import FakeClock
from tests.support.proxies import ROOT, LogRecord

FOLDER = ROOT / "config" / "designs"

UNSPREAD = 0.5
"""The roll in the middle: a jitter of so much more or less changes nothing."""


class Design:
    """One of the files."""

    def __init__(self, file: str | Path) -> None:
        self.path = FOLDER / file
        self.settings = load([self.path], {}).settings

    def route(self, name: str) -> RouteSettings:
        """A route; where the file gives no name, its path."""
        [found] = [route for route in self.settings.routes if route.name == name]
        return found

    def retry(self, name: str) -> RetrySettings:
        """How a route retries, which it must."""
        found = self.route(name).retry
        assert found is not None
        return found

    def rules(self, name: str) -> RetryRules:
        """What the proxy asks after an attempt on this route."""
        [upstream] = [u for u in self.settings.upstreams if u.name == self.route(name).upstream]
        return RetryRules(self.retry(name), upstream)

    def wait(self, name: str, n: int, *, roll: float = UNSPREAD, status: int = 503) -> float:
        """Seconds before retry number *n*, counted from 1, of a request that got *status*."""
        situation = Situation(made=n, time_left=math.inf, roll=roll)
        pause = self.rules(name).wait(AttemptResult(None, status), situation)
        assert isinstance(pause, RetryDelay)
        return pause.seconds

    def waits(self, name: str, count: int, *, status: int = 503) -> list[float]:
        """Seconds before each of the first *count* retries."""
        return [self.wait(name, n, status=status) for n in range(1, count + 1)]

    def running(
        self, overlay: str, *, roll: float = UNSPREAD
    ) -> AbstractAsyncContextManager[RunningProxy]:
        """The proxy with this file and *overlay*; all waits are spread by *roll*."""
        clock = FakeClock()
        clock.chance = roll
        return running(dedent(overlay), upon=[self.path], clock=clock)


def waited(record: LogRecord) -> list[float]:
    """Milliseconds before each retry of a request, as its log line tells."""
    return [attempt["wait_ms"] for attempt in record["attempts"][1:]]


def verdicts(record: LogRecord) -> list[str]:
    """Why each attempt of a request was the last, or was not."""
    return [attempt["why"] for attempt in record["attempts"]]
