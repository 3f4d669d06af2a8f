"""Callers with keys in great numbers, many of whom leave, and an upstream that counts.

The upstream never says the same thing twice, so whoever gets the answer of another
execution, or of another key, is found out.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.support import PATIENCE, Response, Visit, WireEnded, chunked, request, response
from tests.support.proxies import ServedBy
from tests.support.redis_server import PATIENT, redis_server

STATUSES = (200, 201, 303, 402, 404)
"""Those that are kept."""
BODY = b"pay " * 8

in_every_store = pytest.mark.parametrize("store", ["memory", "sqlite", "redis"])
in_lasting_stores = pytest.mark.parametrize("store", ["sqlite", "redis"])
"""Those that outlive the process."""


@asynccontextmanager
async def opened(store: str, folder: Path, more: str = PATIENT) -> AsyncIterator[str]:
    """The line of a configuration file for a store of that kind; *more* has more of its keys."""
    if store == "memory":
        yield "store: memory"
    elif store == "sqlite":
        yield f"store: {{url: 'sqlite:{folder / 'keys.db'}', {more}}}"
    else:
        async with redis_server() as server:
            yield server.line(more)


class Till:
    """An upstream's behaviour: each execution gets a receipt with a number of its own."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = Random(seed)
        self._numbers = count(1)
        self.runs: Counter[str] = Counter()
        """Executions, by key."""
        self.receipts: defaultdict[str, set[tuple[int, bytes]]] = defaultdict(set)
        """What was answered, by key."""

    async def __call__(self, visit: Visit) -> None:
        if await visit.read_body() != BODY:
            return
        key = visit.request.get("Idempotency-Key") or ""
        self.runs[key] += 1
        chance = self._chance
        status = chance.choice(STATUSES)
        receipt = f"{key} ran as number {next(self._numbers)} ".encode() * chance.choice((1, 1, 40))
        self.receipts[key].add((status, receipt))
        if chance.random() < 0.5:
            await asyncio.sleep(chance.uniform(0.0, 0.006))
        whole = response(status, receipt)
        if chance.random() < 0.3:
            whole = chunked(receipt[:20], receipt[20:]).replace(b"200 OK", b"%d Paid" % status)
        cuts = sorted(chance.sample(range(1, len(whole)), chance.choice((0, 0, 1, 3))))
        await visit.send(*(whole[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)))


class Manner(Enum):
    """What a caller does."""

    STAY = "stay"
    LEAVE_BEFORE_THE_BODY = "leave before the body"
    LEAVE_AFTER_SENDING = "leave after sending"
    LEAVE_WHILE_RECEIVING = "leave while receiving"


MANNERS = (Manner.STAY, *Manner)
"""Two of five stay."""


async def call(proxy: ServedBy, key: str, manner: Manner, chance: Random) -> Response | None:
    """One request over a connection of its own; what came of it, if the caller has stayed."""
    message = request("POST", "/", f"Idempotency-Key: {key}", body=BODY)
    async with proxy.client() as client:
        if manner is Manner.LEAVE_BEFORE_THE_BODY:
            message = message[: -chance.randint(1, len(BODY))]
        await client.send(message)
        if manner is Manner.STAY:
            return await client.response("POST")
        if manner is Manner.LEAVE_WHILE_RECEIVING:
            async with asyncio.timeout(PATIENCE):
                await client.wire.something()
        else:
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.004)))
        if chance.random() < 0.5:
            client.wire.close()  # politely; else it is reset
        return None


class Storm:
    """So many callers, each with all of the same keys, in an order of its own."""

    def __init__(self, proxies: Sequence[ServedBy], keys: Sequence[str], seed: int) -> None:
        self._proxies = proxies
        self._keys = keys
        self._seed = seed
        self.answers: defaultdict[str, list[Response]] = defaultdict(list)
        """What those got who stayed, by key."""
        self.left = 0
        """Callers that left."""
        self.cut_off = 0
        """Callers that stayed, and were left."""
        self.slowest = 0.0
        """Seconds that a caller had to wait for its answer."""

    async def rage(self, callers: int, *, breath: float = 0.0) -> None:
        """Until every caller has had its turn with every key.

        Between two calls each takes a *breath*, of so many seconds on the average.
        """
        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(self._call_all(Random(f"{self._seed} {number}"), breath))

    async def _call_all(self, chance: Random, breath: float) -> None:
        for key in chance.sample(self._keys, len(self._keys)):
            proxy, manner = chance.choice(self._proxies), chance.choice(MANNERS)
            await self.call_one(proxy, key, manner, chance)
            await asyncio.sleep(chance.uniform(0.0, 2 * breath))

    async def call_one(self, proxy: ServedBy, key: str, manner: Manner, chance: Random) -> None:
        began = time.monotonic()
        try:
            got = await call(proxy, key, manner, chance)
        except (WireEnded, OSError):
            self.cut_off += 1
            return
        if got is None:
            self.left += 1
        else:
            assert got.complete
            self.answers[key].append(got)
            self.slowest = max(self.slowest, time.monotonic() - began)

    async def ask_each_once_more(self) -> None:
        """So that there is an answer to every key, even if all left who had it."""
        for proxy in self._proxies:
            async with asyncio.TaskGroup() as group:
                for key in self._keys:
                    group.create_task(self.call_one(proxy, key, Manner.STAY, Random(key)))

    def outcomes(self, key: str, counts: Callable[[Response], bool]) -> set[tuple[int, bytes]]:
        """The answers to *key* that count, each once."""
        return {(got.status, got.body) for got in self.answers[key] if counts(got)}


def assert_each_ran_once(till: Till, storm: Storm, keys: Sequence[str]) -> None:
    """And everybody who asked for one key has got the same."""
    assert till.runs == dict.fromkeys(keys, 1)
    for key in keys:
        assert storm.outcomes(key, lambda _: True) == till.receipts[key]
