"""Random keyed requests, their duplicates and their faults; everything follows from a number.

Script 1234 always has the same route, the same fates of its calls and the same callers: how many,
when, at which instance, and who of them leaves. What the upstream read and said is noted by itself.
Moments are seconds of the monotonic clock.
"""

import asyncio
import math
import time
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from tests.support import Behaviour, Response, ScriptedUpstream, Visit

BODY = b"pay 100"
ATTEMPT_TIMEOUT = 2.0
TIMEOUT = 8.0
"""Seconds, of an attempt and of a request."""
LEASE = 5.0
"""Seconds: longer than any outage of a store, so that no lease is lost to one."""
SHORT_LEASE = 1.0
"""Seconds: some outages are longer."""
SHORT_TTL = 0.3
DAY = 86400.0
"""Seconds: what is usual for a ttl."""

QUICK = 200
"""Up to this number no call hangs until its time is up."""

Ending = Literal["keep", "close", "reset", "hang"]


@dataclass(frozen=True)
class Policy:
    """A route, and the upstream that belongs to it."""

    name: str
    ambiguous: Literal["release", "hold"]
    refused: tuple[int, ...] = (421, 425, 429)
    honours_key: bool = False
    in_flight: str = "wait"
    lease: float = LEASE
    ttl: float = DAY
    slow: float = 0.0
    """Seconds that some of its calls take, which is longer than lease or ttl; 0: none does."""

    @property
    def releases(self) -> bool:
        """Whether a key is free again after a call that may have run."""
        return self.ambiguous == "release"

    def yaml(self, url: str) -> tuple[str, str]:
        """Its entries under ``upstreams`` and ``routes``."""
        refused = ", ".join(map(str, self.refused))
        honours = "true" if self.honours_key else "false"
        upstream = (
            f"  {self.name}: {{urls: [{url}], refused: [{refused}], honours_key: {honours},"
            f" budget: false, max_connections: 4096}}\n"
        )
        route = (
            f"  - {{match: /{self.name}/**, upstream: {self.name}, timeout: {TIMEOUT}s,"
            f" retry: {{attempts: 3, attempt_timeout: {ATTEMPT_TIMEOUT}s,"
            f" backoff: {{base: 1ms, max: 2ms}}, retry_after: false}},"
            f" idempotency: {{lease: {self.lease}s, ttl: {self.ttl}s,"
            f" on_ambiguous: {self.ambiguous}, in_flight: {self.in_flight},"
            f" max_response: 8KiB}}}}\n"
        )
        return upstream, route


POLICIES = (
    Policy("release", "release"),
    Policy("hold", "hold"),
    Policy("reject", "hold", in_flight="reject"),
    Policy("refusing", "hold", refused=(429, 503)),
    Policy("honouring", "release", honours_key=True),
    Policy("slow", "hold", lease=SHORT_LEASE, slow=1.3),
    Policy("leased", "release", lease=SHORT_LEASE, slow=1.3),
    Policy("brief", "hold", ttl=SHORT_TTL, lease=SHORT_LEASE, slow=0.5),
    Policy("fleeting", "release", ttl=SHORT_TTL, slow=0.5),
)
_WEIGHTS = (8, 12, 4, 6, 4, 2, 2, 2, 2)


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of one call."""

    says: bytes = b""
    status: int = 0
    """Of the response, if its whole head is in ``says``; else 0."""
    whole: bool = False
    """Whether all of it is."""
    after: float = 0.0
    """Seconds before a word is said."""
    then: Ending = "keep"
    late: bytes = b""
    """What is said a moment later, though nobody waits for it."""


@dataclass(eq=False)
class Arrival:
    """A call as the upstream saw it."""

    fate: Fate
    at: float
    receipt: bytes
    caller: str = ""
    """Whose request it was."""
    complete: bool = False
    """Whether all of the request was read: from then on it may have been acted upon."""
    over: float = math.inf
    """When the upstream began to say how it ended, or ended the connection."""


@dataclass(frozen=True)
class Caller:
    """One of those who send the same request."""

    after: float
    instance: int
    leaves_after: float | None
    """Seconds; None: stays."""
    name: str = ""
    """Its X-Request-Id."""
    comes_again: bool = False
    """Whether it comes once those have their answers who came before it."""


@dataclass
class Script:
    """One key, its callers and its fates, and what came of them."""

    number: int
    policy: Policy
    fates: list[Fate]
    callers: list[Caller]
    arrivals: list[Arrival] = field(default_factory=list)
    seen: list[Response] = field(default_factory=list)
    """What those got who stayed."""
    sent: dict[str, float] = field(default_factory=dict)
    """When each caller sent its request."""

    @property
    def target(self) -> str:
        return f"/{self.policy.name}/{self.number}"

    @property
    def key(self) -> str:
        return f"Idempotency-Key: script-{self.number}"

    def __str__(self) -> str:
        start = self.arrivals[0].at if self.arrivals else 0.0
        return "\n  ".join(
            (
                f"script {self.number}: {self.policy}",
                *(
                    f"{c} sent at {self.sent.get(c.name, math.inf) - start:.3f}"
                    for c in self.callers
                ),
                *(
                    f"{a.caller} arrived at {a.at - start:.3f}, complete: {a.complete}, over at"
                    f" {a.over - start:.3f}: {str(a.fate)[:160]}"
                    for a in self.arrivals
                ),
                *(f"seen {r.status} {r.body[:90]!r} {r.complete}" for r in self.seen),
            )
        )


_TOKEN = b"A-RECEIPT"
"""Stands for one in what a call says, and is as long, so that lengths and chunks stay right."""
_SIZES = (0,) * 12 + (1000,) * 4 + (6000, 12_000)
"""Bytes of a result: usual, large (fetched apart from the claim), too large to be kept."""
_STATUSES = (200,) * 8 + (201, 303, 404, 402, 403, 409, 429, 425, 500, 502, 503, 503, 504, 501)


def _random_fate(chance: Random, policy: Policy) -> Fate:
    status = chance.choice(_STATUSES)
    if policy.slow and chance.random() < 0.3:
        status = 429  # it did not run: whoever still has the key sends it again
    size = chance.choice(_SIZES)
    body = b"receipt %b " % _TOKEN + b"." * size
    framing = chance.choice(("length", "length", "chunked"))
    head = f"HTTP/1.1 {status} Scripted\r\n".encode()
    if framing == "length":
        says = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        says = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    after = chance.choice((0.0, 0.0, 0.002, 0.01))
    if policy.slow and chance.random() < 0.5:
        after = policy.slow
    (fault,) = chance.choices(("none", "empty", "silence", "head", "body"), (70, 6, 12, 5, 7))
    match fault:
        case "empty":
            # 204 and 205 have no body; what comes all the same is nobody's answer.
            status = chance.choice((204, 205))
            says = b"HTTP/1.1 %d Empty\r\nContent-Length: 4\r\n\r\n" % status
            return Fate(says=says, status=status, whole=True, after=after, late=b"evil")
        case "silence":
            ends: tuple[Ending, ...] = ("close",) * 4 + ("reset",) * 4 + ("hang",)
            return Fate(after=after, then=chance.choice(ends))
        case "head":
            cut = chance.randrange(1, says.index(b"\r\n\r\n") + 3)
            return Fate(says=says[:cut], after=after, then=chance.choice(("close", "reset")))
        case "body":
            then: Ending = chance.choice(("close", "reset"))
            return Fate(says=says[:-3], status=status, after=after, then=then)
        case _:
            then = chance.choice(("keep", "keep", "keep", "close"))
            return Fate(says=says, status=status, whole=True, after=after, then=then)


def random_script(number: int, instances: int) -> Script:
    """The script of that number."""
    chance = Random(f"keyed {number}")
    policy = chance.choices(POLICIES, _WEIGHTS)[0]
    later = (0.2, 0.45, 0.8) if policy.slow else ()
    together = chance.choice((1, 1, 2, 2, 3, 4, 6))
    callers = [
        Caller(
            after=chance.choice((0.0, 0.0, 0.001, 0.005, 0.02, 0.1, *later)),
            instance=chance.randrange(instances),
            leaves_after=chance.choice((None, None, None, None, 0.0, 0.001, 0.01)),
            name=f"{number}.{index}",
            comes_again=index >= together,
        )
        for index in range(together + chance.choice((0, 1, 1)))
    ]
    fates = [_random_fate(chance, policy) for _ in range(8)]
    if number < QUICK:
        fates = [replace(fate, then="close") if fate.then == "hang" else fate for fate in fates]
    return Script(number, policy, fates, callers)


class Stage:
    """An upstream that acts scripts out."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.upstream = ScriptedUpstream(self._behaviour())

    def config(self, store: str) -> str:
        """A file with all policies."""
        entries = [policy.yaml(self.upstream.url) for policy in POLICIES]
        return (
            f"{store}\naccess_log: notable\nupstreams:\n{''.join(up for up, _ in entries)}"
            f"routes:\n{''.join(route for _, route in entries)}"
        )

    def _behaviour(self) -> Behaviour:
        async def behave(visit: Visit) -> None:
            script = self.scripts[visit.request.target]
            number = len(script.arrivals)
            fate = script.fates[number] if number < len(script.fates) else _GOOD
            receipt = (b"%d.%d" % (script.number, number)).rjust(len(_TOKEN), b"-")
            caller = visit.request.get("X-Request-Id") or ""
            arrival = Arrival(fate, time.monotonic(), receipt, caller)
            script.arrivals.append(arrival)
            try:
                await _play(visit, arrival)
            finally:
                arrival.over = min(arrival.over, time.monotonic())  # said before, or cut off

        return behave


async def _play(visit: Visit, arrival: Arrival) -> None:
    fate = arrival.fate
    arrival.complete = await visit.read_body() == BODY
    if fate.after:
        await asyncio.sleep(fate.after)
    if fate.then != "hang":
        arrival.over = time.monotonic()
    if fate.says:
        await visit.send(fate.says.replace(_TOKEN, arrival.receipt))
    if fate.late:
        await asyncio.sleep(0.003)
        visit.wire.write(fate.late)
    match fate.then:
        case "close":
            visit.wire.close()
        case "reset":
            await asyncio.sleep(0.005)  # what was said before is read first
            visit.wire.reset()
        case "hang":
            await visit.until_the_peer_leaves()
        case _:
            pass


_GOOD = Fate(
    says=b"HTTP/1.1 200 Good\r\nContent-Length: 17\r\n\r\nreceipt %b" % _TOKEN,
    status=200,
    whole=True,
)
