"""Load, restarts, outages and kill -9 for as long as one likes; then every id is accounted for.

``python -m tests.faults.soak SECONDS`` prints the figures; ``make soak`` runs it for 15 minutes.
"""

import asyncio
import json
import random
import signal
import socket
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from tests.support import (
    ProxyProcess,
    RawClient,
    Response,
    ScriptedUpstream,
    Visit,
    WireEnded,
    ok,
    reset,
    response,
    subprocess_proxy,
)
from tests.support.handed_off import ASYNC, delivery_id

KINDS = ("put", "keyed", "plain")
"""Requests that are repeatable by their method, by a key, and not at all."""
CALLERS = 20
CONFIG = """
state_dir: {folder}/state
listen: 127.0.0.1:{port}
drain_timeout: 2s
access_log: none
upstreams:
  honours: {{urls: ["{url}"], honours_key: true}}
  plain: {{urls: ["{url}"]}}
defaults:
  dead_letter: true
  timeout: 5s
  idempotency: {{on_ambiguous: hold, ttl: 4d}}
  hand_off: {{concurrency: 32, timeout: 5s, retry: {{backoff: {{base: 50ms, max: 2s}}}}}}
routes:
  - {{name: put, match: "PUT /put/**", upstream: plain}}
  - {{name: keyed, match: "POST /keyed/**", upstream: honours}}
  - {{name: plain, match: "POST /plain/**", upstream: plain}}
"""


@dataclass
class Soak:
    """One run: what clients were promised, what the upstream did, and how it ended."""

    seconds: float
    rate: float
    restart_every: float
    accepted: dict[str, str] = field(default_factory=dict)
    """Ids of deliveries that clients have a 202 for, by the target."""
    performed: Counter[str] = field(default_factory=Counter)
    """How often the upstream has done what was asked, by the target."""
    answers: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    is_down: bool = False
    _chance: random.Random = field(default_factory=lambda: random.Random(7))

    async def serve(self, visit: Visit) -> None:
        """Do what is asked, mostly; and say so, mostly."""
        if self.is_down:
            await reset(visit)
            return
        await visit.read_body()
        roll = self._chance.random()
        if roll < 0.05:
            # Rarely with a hint: that is for all, and nothing is sent for a second.
            hint = ("Retry-After: 1",) if roll < 0.0005 else ()
            await visit.send(response(429, b"", *hint))
            return
        self.performed[visit.request.target] += 1
        if roll < 0.1:
            await reset(visit)
        else:
            await visit.send(ok())

    async def run(self, folder: Path) -> None:
        """Send, restart, and account for every id."""
        async with ScriptedUpstream(usual=self.serve) as upstream:
            port = _free_port()
            text = CONFIG.format(folder=folder, url=upstream.url, port=port)
            over = monotonic() + self.seconds
            numbers = iter(range(10**9))
            callers = [
                asyncio.ensure_future(self._call(port, numbers, over)) for _ in range(CALLERS)
            ]
            outages = asyncio.ensure_future(self._fail_now_and_then(over))
            try:
                while monotonic() < over:
                    async with subprocess_proxy(text) as proxy:
                        await asyncio.sleep(min(self.restart_every, max(over - monotonic(), 0)))
                        await self._end(proxy)
                outages.cancel()
                self.is_down = False
                async with subprocess_proxy(text) as proxy:
                    await asyncio.gather(*callers)
                    await self._account(proxy)
            finally:
                for task in (*callers, outages):
                    task.cancel()

    async def _end(self, proxy: ProxyProcess) -> None:
        is_killed = sum(self.restarts.values()) % 2 == 0
        self.restarts["kill -9" if is_killed else "SIGTERM"] += 1
        proxy.signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        status = await proxy.process.wait()
        assert is_killed or status == 0, status

    async def _fail_now_and_then(self, over: float) -> None:
        while monotonic() < over:
            await asyncio.sleep(self.restart_every * 0.9)
            self.is_down = True
            await asyncio.sleep(self.restart_every * 0.3)
            self.is_down = False

    async def _call(self, port: int, numbers: Any, over: float) -> None:  # noqa: ANN401 - an iterator
        between = CALLERS / self.rate
        while monotonic() < over:
            began, number = monotonic(), next(numbers)
            kind = KINDS[number % len(KINDS)]
            target = f"/{kind}/{number}"
            while True:
                given = await _ask(port, "PUT" if kind == "put" else "POST", target)
                if given is not None and given.status in {200, 202, 409}:
                    break
                await asyncio.sleep(0.2)  # as a client does: later, with the same key
            self.answers[str(given.status)] += 1
            if given.status == 202:
                self.accepted[target] = delivery_id(given)
            await asyncio.sleep(max(began + between - monotonic(), 0))

    async def _account(self, proxy: ProxyProcess) -> None:
        """Wait until all have ended; check each of them."""
        ends: dict[str, tuple[str, str]] = {}
        limit = monotonic() + 300
        after = ""
        while True:
            metrics = await proxy.metrics()
            is_open = sum(
                metrics.total("holdfast_deliveries", state=state)
                for state in ("waiting", "sending", "retrying")
            )
            if not is_open:
                break
            assert monotonic() < limit, f"{is_open} are still open"
            await asyncio.sleep(1)
        while True:
            query = f"order=oldest&limit=1000{f'&after={after}' if after else ''}"
            page = json.loads((await proxy.admin("GET", f"/deliveries?{query}")).body)
            for one in page["deliveries"]:
                ends[one["id"]] = (one["state"], one["target"])
            after = page["next"]
            if not after:
                break
        self.states = Counter(state for state, _ in ends.values())
        lost = [target for target, name in self.accepted.items() if name not in ends]
        assert not lost, f"{len(lost)} were accepted and are nowhere, such as {lost[:3]}"
        assert set(self.states) <= {"delivered", "failed"}, self.states
        for target, name in self.accepted.items():
            state, found = ends[name]
            assert found == target
            if state == "delivered":
                assert self.performed[target], f"{target} is delivered, and was never done"
        twice = [t for t, times in self.performed.items() if times > 1 and t.startswith("/plain")]
        assert not twice, f"{len(twice)} ran twice that must not, such as {twice[:3]}"

    def figures(self) -> str:
        """Tell how it went, in one line."""
        twice = sum(times > 1 for times in self.performed.values())
        return (
            f"{self.seconds:g} s: {len(self.accepted)} accepted, {dict(self.states)}, "
            f"{sum(self.restarts.values())} restarts {dict(self.restarts)}, answers "
            f"{dict(self.answers)}, {twice} repeatable ones done more than once"
        )


async def _ask(port: int, method: str, target: str) -> Response | None:
    with suppress(WireEnded, OSError, AssertionError):
        async with RawClient(port) as client:
            key = f"Idempotency-Key: {target.replace('/', '-')}"
            return await client.request(method, target, ASYNC, key, body=target.encode())
    return None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def soak(seconds: float, rate: float = 200, restart_every: float = 10) -> Soak:
    """Run for so many *seconds*; raise AssertionError if an id is lost or ran when it must not."""
    found = Soak(seconds, rate, restart_every)
    with tempfile.TemporaryDirectory() as folder:
        await found.run(Path(folder))
    return found


if __name__ == "__main__":
    print(asyncio.run(soak(float(sys.argv[1]))).figures())  # noqa: T201 - what it is for
