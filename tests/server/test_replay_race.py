"""A piece of the body comes in the very iteration of the loop in which its attempt is given up.

The reader of the body is awake already then, and takes the piece in before it can be stopped.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from random import Random

import pytest

from tests.server.replaying import UNAVAILABLE, by_chunks, by_length, kept_by, watching
from tests.support import (
    RawClient,
    Request,
    Response,
    ScriptedUpstream,
    Visit,
    both_loops,
    ok,
    one_route,
    running,
)
from tests.support.depth import DEEP

BUFFER = 1000
RACES = 4_000 if DEEP else 200
AT_ONCE = 20


class Upload:
    """A body of which a piece arrives together with each early answer, as chance will have it."""

    def __init__(self, seed: int, client: RawClient) -> None:
        self.chance = chance = Random(seed)
        self.body = chance.randbytes(chance.choice((300, BUFFER, BUFFER + 300, 3 * BUFFER)))
        self.is_chunked = chance.random() < 0.7
        framed = by_chunks if self.is_chunked else by_length
        self._client = client
        self._head, self._pieces = framed(self.body, chance.choice((40, 150, 400, 600)))
        self._head = self._head.replace(b" / ", b" /%d " % seed)
        self._attempts = 0
        self.seen: list[Request] = []

    def start(self) -> None:
        self._client.wire.write(self._head)
        if self.chance.random() < 0.5:
            self._send_piece()

    def _send_piece(self) -> None:
        if self._pieces:
            self._client.wire.write(self._pieces.pop(0))

    async def attempt(self, visit: Visit) -> None:
        """Early 503s and resets, each in one iteration with a piece; the fourth gets the rest."""
        self._attempts += 1
        self.seen.append(visit.request)
        if self._attempts == 4:
            while self._pieces:
                self._send_piece()
            await visit.read_body()
            await visit.send(ok())
            return
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        writes: list[Callable[[], None]] = [
            self._send_piece,
            visit.wire.reset
            if self.chance.random() < 0.2
            else lambda: visit.wire.write(UNAVAILABLE),
        ]
        if self.chance.random() < 0.3:
            writes.insert(0, self._send_piece)
        self.chance.shuffle(writes)
        for write in writes:
            write()
        # All of it may have come by now: then another request may follow.
        await visit.read_body()

    def check(self, seen: Response) -> None:
        for attempt in self.seen:
            if attempt.complete or not self.is_chunked:
                assert self.body.startswith(attempt.body)
        assert len({attempt.raw_head for attempt in self.seen}) == 1
        if seen.status == 200:
            last = self.seen[-1]
            assert last.complete
            assert sha256(last.body).digest() == sha256(self.body).digest()
            assert len(self.seen) == 4
        else:
            assert seen.status in {502, 503}


@both_loops
@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(1_000_000, id="enough memory"),
        pytest.param(5 * BUFFER, id="never enough memory"),
    ],
)
async def test_no_attempt_carries_a_wrong_body_however_the_moments_fall(memory: int) -> None:
    uploads: dict[str, Upload] = {}
    statuses: Counter[int] = Counter()

    async def play(visit: Visit) -> None:
        await uploads[visit.request.target].attempt(visit)

    async def some(seeds: range) -> None:
        for seed in seeds:
            async with proxy.client() as client:
                upload = uploads[f"/{seed}"] = Upload(seed, client)
                upload.start()
                seen = await client.response("PUT")
            statuses[seen.status] += 1
            try:
                upload.check(seen)
                if len(upload.body) <= BUFFER < memory / AT_ONCE:
                    assert seen.status == 200
            except AssertionError as error:
                error.add_note(f"seed {seed}")
                raise

    route = f"buffer: {BUFFER}B\nretry: {{attempts: 4, backoff: {{base: 1ms, max: 1ms}}}}"
    limits = f"limits: {{replay_memory: {memory}B}}"
    async with (
        ScriptedUpstream(play) as upstream,
        running(one_route(upstream, route, options="budget: false", top=limits)) as proxy,
        watching(proxy) as most,
    ):
        await asyncio.gather(*(some(range(first, RACES, AT_ONCE)) for first in range(AT_ONCE)))
        assert 0 < most() <= memory
        assert kept_by(proxy) == 0
    # Else nothing was tried.
    assert statuses[200] > RACES / 20
    assert statuses[503] + statuses[502] > RACES / 20
