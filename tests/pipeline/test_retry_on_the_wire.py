"""What the rules allow, what was on the wire and what we say about it: all three agree.

For every way to fail, each combination of method, key, promise and body goes through one
running proxy. ``retry_rules.py`` says how many attempts each may have; the upstream
counts those that came; access log, metrics and answer must claim the same number.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.support import (
    Behaviour,
    Certificates,
    Metrics,
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    WireEnded,
    answer,
    answer_and_close,
    close_at_once,
    hang,
    hang_up,
    ok,
    request,
    reset,
    response,
    running,
)
from tests.support.clock import FakeClock
from tests.support.ports import refusing_port
from tests.support.proxies import LogRecord

from .retry_rules import ATTEMPTS, BUFFER, USUAL_KEY, Body, Case, Expected, Fault, expected

OTHER_KEY = "X-Order-Id"
PROMISES = {"": "false", USUAL_KEY: "true", OTHER_KEY: OTHER_KEY}
"""``honours_key`` as the file has it, by the header that it stands for."""
METHODS = ("GET", "PUT", "DELETE", "POST", "PATCH", "PURGE")
KEYS = ("", USUAL_KEY, OTHER_KEY)
SIZES = (10, BUFFER, BUFFER + 1)
BODIES = (Body(), *(Body(size, framing) for framing in ("length", "chunked") for size in SIZES))
SMALL = Body(10, "length")

CASES = (
    *(Case(*row) for row in product(METHODS, KEYS, PROMISES, ["auto"], BODIES)),
    *(Case(*row) for row in product(METHODS, KEYS, PROMISES, ["never", "always"], [SMALL])),
    *(Case(*row, failures=1) for row in product(METHODS, KEYS, PROMISES, ["auto"], [SMALL])),
    *(Case(method, body=BODIES[-2], failures=2) for method in METHODS),
)
AT_A_TIME = 64


def test_x():
    print(len(CASES))
