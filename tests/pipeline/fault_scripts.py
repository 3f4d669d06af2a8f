"""Random policies, requests and faults, and an upstream that acts them out.

Everything follows from a number: script 1234 is always the same policy, the same request
and the same faults. What the upstream read and what it answered is noted by itself, at the
moment in which it happens; nothing of it comes from the proxy.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal
from weakref import WeakSet

from tests.support import Behaviour, Request, Response, ScriptedUpstream, Visit, Wire, response

BUFFER = 64
ATTEMPT_TIMEOUT = 0.1
USUAL_KEY = "Idempotency-Key"
OTHER_KEY = "X-Once"

Place = Literal["first", "second", "other"]
"""Two addresses of the upstream, and the one that stands in for it."""


# Policies.


@dataclass(frozen=True)
class Policy:
    """A route, and the upstream that belongs to it."""

    number: int
    unsafe: str
    honours_key: str
    """Header's name; empty: no."""
    refused: tuple[int, ...]
    on: tuple[str, ...]
    attempts: int
    addresses: tuple[str, ...]
    """Names of places, and ``dead``."""
    falls_back: bool
    other_honours_key: bool
    shared: bool
    """Whether a key that one address got is known to the others."""

    def lists(self, status: int) -> bool:
        """Whether ``on`` names this status."""
        by_word = "refused" in self._words and status in self.refused
        return by_word or str(status) in self._words or f"{status // 100}xx" in self._words

    def of(self, place: Place) -> "Policy":
        """What holds there: the other upstream knows keys of its own, or none."""
        if place != "other":
            return self
        return replace(self, honours_key=USUAL_KEY if self.other_honours_key else "")

    @property
    def _promise(self) -> str:
        if not self.honours_key:
            return "false"
        return f"{{header: {self.honours_key}, shared: {str(self.shared).lower()}}}"

    @property
    def _words(self) -> set[str]:
        words = set(self.on)
        return words | _USUAL_OUTCOMES if "default" in words else words

    def yaml(self, urls: dict[str, str]) -> tuple[str, str]:
        """Its entries under ``upstreams`` and ``routes``."""
        addresses = ", ".join(urls[address] for address in self.addresses)
        refused = ", ".join(map(str, self.refused))
        upstream = (
            f"  up{self.number}: {{urls: [{addresses}], honours_key: {self._promise},"
            f" refused: [{refused}], budget: false}}\n"
        )
        other = "known" if self.other_honours_key else "unknown"
        fallback = f", fallback: {{upstream: {other}}}" if self.falls_back else ""
        route = (
            f"  - {{match: /{self.number}/**, upstream: up{self.number}, buffer: {BUFFER}B,"
            f" timeout: 500ms, idle_timeout: 200ms,"
            f" retry: {{attempts: {self.attempts}, unsafe: {self.unsafe},"
            f" on: [{', '.join(self.on)}], attempt_timeout: {ATTEMPT_TIMEOUT}s,"
            f" backoff: {{base: 1ms, max: 1ms}}}}{fallback}}}\n"
        )
        return upstream, route


_USUAL_OUTCOMES = {"connect", "refused", "reset", "timeout", "408", "502", "503", "504"}
_LISTS = (
    ("default",),
    ("default",),
    ("default", "protocol", "500"),
    ("default", "protocol", "429", "4xx", "5xx"),
    ("connect", "reset", "timeout", "503"),
    ("refused", "503"),
    ("connect", "protocol", "429", "425", "500"),
)


def random_policies(count: int) -> list[Policy]:
    """The routes of one file."""
    chance = Random("policies")
    return [
        Policy(
            number=number,
            unsafe=chance.choice(("auto", "auto", "auto", "auto", "never", "always")),
            honours_key=chance.choice(("", "", "", USUAL_KEY, OTHER_KEY)),
            refused=chance.choice(((421, 425, 429),) * 3 + ((429, 503), (409,))),
            on=chance.choice(_LISTS),
            attempts=chance.choice((2, 2, 3, 4)),
            addresses=chance.choice(
                (("first",), ("first", "second"), ("dead", "first"), ("second", "dead", "first"))
            ),
            falls_back=chance.random() < 0.5,
            other_honours_key=chance.random() < 0.5,
            shared=chance.random() < 0.4,
        )
        for number in range(count)
    ]


def configuration(policies: list[Policy], urls: dict[str, str]) -> str:
    """One file with all of them."""
    entries = [policy.yaml(urls) for policy in policies]
    other = urls["other"]
    return (
        "access_log: none\nupstreams:\n"
        f"  known: {{urls: [{other}], honours_key: true}}\n"
        f"  unknown: {{urls: [{other}]}}\n"
        f"{''.join(upstream for upstream, _ in entries)}"
        f"routes:\n{''.join(route for _, route in entries)}"
    )


# Requests.


@dataclass(frozen=True)
class Sent:
    """What the client sends."""

    method: str
    keys: tuple[str, ...]
    """Lines that carry a key, or seem to."""
    early_data: bool
    body: bytes | None
    chunk: int
    """Bytes of a chunk; 0: it has a Content-Length."""
    pieces: int
    """In how many pieces it goes out, the head being part of the first."""

    def carries(self, name: str) -> bool:
        """Whether it has that one key, and only one of that name."""
        values = [
            value.strip()
            for line, _, value in (key.partition(":") for key in self.keys)
            if line.lower() == name.lower()
        ]
        return len(values) == 1 and bool(values[0])

    def wire(self, target: str) -> Iterator[bytes]:
        """The bytes, piece by piece."""
        lines = [f"{self.method} {target} HTTP/1.1", "Host: a.example", *self.keys]
        if self.early_data:
            lines.append("Early-Data: 1")
        body = self.body or b""
        if self.body is not None and self.chunk:
            lines.append("Transfer-Encoding: chunked")
            chunks = (body[i : i + self.chunk] for i in range(0, len(body), self.chunk))
            body = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
        elif self.body is not None:
            lines.append(f"Content-Length: {len(body)}")
        raw = "".join(f"{line}\r\n" for line in (*lines, "")).encode() + body
        size = len(raw) // self.pieces + 1
        return (raw[start : start + size] for start in range(0, len(raw), size))


_METHODS = ("POST",) * 6 + ("PATCH",) * 3 + ("PURGE", "LOCK", "REPORT", "PUT", "DELETE", "GET")
_KEYS: tuple[tuple[str, ...], ...] = (
    (),
    (),
    *((f"{USUAL_KEY}: k",),) * 4,
    (f"{USUAL_KEY}:",),
    (f"{USUAL_KEY}: k", f"{USUAL_KEY}: k"),
    (f"{USUAL_KEY}: k", f"{USUAL_KEY.lower()}: other"),
    (f"{OTHER_KEY}: k",),
    (f"{OTHER_KEY}: k", f"{USUAL_KEY}:  "),
)


def _random_request(chance: Random) -> Sent:
    size = chance.choice((None, 0, 1, 40, BUFFER - 1, BUFFER, BUFFER + 1, 3 * BUFFER, 5000))
    return Sent(
        method=chance.choice(_METHODS),
        keys=chance.choice(_KEYS),
        early_data=chance.random() < 0.2,
        body=None if size is None else chance.randbytes(size),
        chunk=chance.choice((0, 0, 7, 1000)),
        pieces=chance.choice((1, 1, 2, 5)),
    )


# Faults.

Share = Literal["all", "some", "head"]
"""How much of a request is read before it is answered."""
Ending = Literal["keep", "close", "reset", "half-close", "hang"]
"""What happens to the connection afterwards. Half-closed, it can still take a request and
act on it, but cannot answer any more."""


@dataclass(frozen=True)
class Fate:
    """What becomes of one attempt."""

    reads: Share
    says: bytes
    status: int
    """Of the final response, if all of its head is in ``says``; else 0."""
    pieces: int
    then: Ending
    late: bool = False
    """Whether it says so only after the attempt's time."""
    surplus: bytes = b""
    """What is said a moment later, though nobody waits for it."""


_STATUSES = (
    *(429,) * 5,
    *(503,) * 9,
    *(421, 425, 425, 409) * 2,
    *(200, 403, 404, 408, 500, 502, 504, 529),
)
_FIELDS = (
    (),
    (),
    (),
    ("Retry-After: 0",),
    ("X-Should-Retry: true",),
    ("X-Should-Retry: false",),
    ("Idempotent-Replayed: true",),
    ("Connection: close",),
)
_NOT_HTTP = (
    b"\x16\x03\x01\x02\x00",
    b"HTTP/1.1 429 Slow\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"HTTP/1.1 429 Slow\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 503\x00\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 429 Slow\r\nno colon\r\n\r\n",
    b"HTTP/9.9 503 No\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
)


def _random_fate(chance: Random) -> Fate:
    status = chance.choice(_STATUSES)
    says = response(status, b"body", *chance.choice(_FIELDS))
    surplus = b""
    endings: tuple[Ending, ...] = ("close", "reset")
    (fault,) = chance.choices(_FAULTS, _WEIGHTS)
    match fault:
        case "none":
            endings = ("keep", "keep", "keep", "close", "reset", "half-close")
        case "silence":
            says, status = b"", 0
            endings = ("close", "close", "reset", "reset", "half-close", "hang")
        case "head":
            says, status = says[: chance.randrange(1, says.index(b"\r\n\r\n") + 3)], 0
            endings = ("close", "reset", "hang")
        case "body":
            says = says[: -chance.randrange(1, 5)]
            endings = ("close", "reset", "hang")
        case "surplus":
            # 204 and 205 have no body: what comes all the same must be nobody's answer.
            status = chance.choice((204, 205))
            says, surplus = b"HTTP/1.1 %d No\r\nContent-Length: 4\r\n\r\n" % status, b"evil"
            endings = ("keep",)
        case "hints":
            says, status = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 0
        case _:
            says, status = chance.choice(_NOT_HTTP), 0
    return Fate(
        reads=chance.choice(_SHARES),
        says=says,
        status=status,
        pieces=chance.choice((1, 1, 3)),
        then=chance.choice(endings),
        late=chance.random() < 0.03,
        surplus=surplus,
    )


_FAULTS = ("none", "silence", "head", "body", "hints", "nonsense", "surplus")
_WEIGHTS = (62, 16, 6, 5, 5, 6, 4)
_SHARES: tuple[Share, ...] = ("all", "all", "all", "some", "head")


@dataclass
class Arrival:
    """An attempt as the upstream saw it."""

    place: Place
    head: bytes
    """Without Host, which follows the address; empty if it was not complete."""
    body: bytes = b""
    complete: bool = False
    """Whether the whole request was read: from then on it may have been acted upon."""
    answered: int = 0
    """Final status, once its whole head was written."""
    advised: str = ""
    """``true`` or ``false``, if the answer says whether it should be retried."""
    final: bool = False
    """Whether it says that any other attempt gets the same."""


@dataclass
class Script:
    """One request, its faults, and what came of them."""

    number: int
    policy: Policy
    sent: Sent
    fates: list[Fate]
    arrivals: list[Arrival] = field(default_factory=list)
    seen: Response | None = None
    """What the client got; None if the connection broke off."""

    @property
    def target(self) -> str:
        return f"/{self.policy.number}/{self.number}"

    def __str__(self) -> str:
        sent = replace(self.sent, body=None)
        size = len(self.sent.body or b"")
        return "\n  ".join(
            (
                f"script {self.number}: {self.policy}",
                f"{sent} with {size} bytes, seen {self.seen and self.seen.status}",
                *map(str, self.fates[: len(self.arrivals)]),
                *(
                    f"{a.place} read {len(a.body)} bytes, complete: {a.complete}, {a.answered}"
                    for a in self.arrivals
                ),
            )
        )


def random_script(number: int, policies: list[Policy]) -> Script:
    """Neighbours share a policy, so that they meet in its pools."""
    chance = Random(number)
    policy = policies[number // 50 % len(policies)]
    fates = [_random_fate(chance) for _ in range(chance.randrange(2, 7))]
    return Script(number, policy, _random_request(chance), fates)


# The upstream.

_host = re.compile(rb"\r\nHost: [^\r]*")
_advice = re.compile(rb"X-Should-Retry: (\w+)").search
_target = re.compile(rb"\S+ (\S+) ").match


class Troupe:
    """Acts out scripts at three places."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.places: dict[Place, ScriptedUpstream] = {
            "first": ScriptedUpstream(self._usual("first")),
            "second": ScriptedUpstream(self._usual("second")),
            "other": ScriptedUpstream(self._usual("other")),
        }
        self._cannot_answer: WeakSet[Wire] = WeakSet()

    def be_rude(self, chance: Random) -> None:
        """Now and then the next connection is not even let finish its first line."""
        if chance.random() < 0.15:
            place: Place = chance.choice(("first", "second"))
            self.places[place].greet(self._rude(place, chance.randrange(40)))

    def _rude(self, place: Place, taken: int) -> Callable[[Wire], Awaitable[None]]:
        async def greet(wire: Wire) -> None:
            if taken:
                await wire.something()
                found = _target(bytes(wire.unread[:taken]))
                if found is not None:
                    self.scripts[found[1].decode()].arrivals.append(Arrival(place, b""))
            wire.reset()

        return greet

    def _usual(self, place: Place) -> Behaviour:
        async def behave(visit: Visit) -> None:
            request = visit.request
            script = self.scripts[request.target]
            arrival = Arrival(place, _host.sub(b"", request.raw_head))
            script.arrivals.append(arrival)
            played = len(script.arrivals) - 1
            fate = script.fates[played] if played < len(script.fates) else _GOOD
            if visit.wire in self._cannot_answer:
                fate = _SPEECHLESS
            try:
                await self._play(visit, arrival, fate)
            finally:
                _note(request, arrival)

        return behave

    async def _play(self, visit: Visit, arrival: Arrival, fate: Fate) -> None:
        wire = visit.wire
        if fate.reads == "all":
            await visit.read_body()
            _note(visit.request, arrival)
        elif fate.reads == "some":
            await asyncio.sleep(0.001)
        if fate.late:
            await asyncio.sleep(ATTEMPT_TIMEOUT * 1.3)
        size = len(fate.says) // fate.pieces + 1
        pieces = [fate.says[start : start + size] for start in range(0, len(fate.says), size)]
        await visit.send(*pieces)
        arrival.answered = fate.status
        advice = _advice(fate.says)
        arrival.advised = advice[1].decode() if advice is not None else ""
        arrival.final = bool(fate.status) and b"Idempotent-Replayed: true" in fate.says
        if fate.surplus:
            await asyncio.sleep(0.002)
            wire.write(fate.surplus)
        match fate.then:
            case "keep":
                await visit.read_body()
            case "close":
                wire.close()
            case "reset":
                wire.reset()
            case "half-close":
                await visit.read_body()
                self._cannot_answer.add(wire)
                wire.half_close()
            case "hang":
                await visit.until_the_peer_leaves()


_GOOD = Fate("all", response(200, b"good"), 200, 1, "keep")
_SPEECHLESS = Fate("all", b"", 0, 1, "close")


def _note(request: Request, arrival: Arrival) -> None:
    arrival.body, arrival.complete = request.body, request.complete
