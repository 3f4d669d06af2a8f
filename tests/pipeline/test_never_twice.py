"""A request that may have run is never sent twice, unless the file says so.

Thousands of random requests meet random faults under random policies. What the upstream
itself noted (how much it read, what it answered) is held against the rule of the contract by
a judge that shares no code with the proxy.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from itertools import pairwise
from random import Random

import pytest

from tests.pipeline.fault_scripts import (
    BUFFER,
    USUAL_KEY,
    Arrival,
    Policy,
    Script,
    Sent,
    Troupe,
    configuration,
    random_policies,
    random_script,
)
from tests.support import RawClient, RunningProxy, WireEnded, running
from tests.support.ports import refusing_port

AT_ONCE = 32
POLICIES = 50

SAFE = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
KEYED = {"POST", "PATCH"}


# The judge.


def may_run_twice(policy: Policy, sent: Sent) -> bool:
    """Whether the method, or the file, says that a second run does no harm."""
    if sent.method in SAFE or policy.unsafe == "always":
        return True
    honoured = bool(policy.honours_key) and sent.carries(policy.honours_key)
    return policy.unsafe == "auto" and sent.method in KEYED and honoured


def knows_its_key(script: Script, index: int) -> bool:
    """Whether the upstream of the arrival after *index* would know the request again by its key.

    One that got it itself does, or any of those that share what they know.
    """
    policy, sent, after = script.policy, script.sent, script.arrivals[index + 1]
    if sent.method in SAFE or policy.unsafe == "always" or policy.shared:
        return True
    ran_at = {a.place for a in script.arrivals[: index + 1] if not was_refused(policy, a)}
    return ran_at <= {after.place}


def was_refused(policy: Policy, arrival: Arrival) -> bool:
    """Whether the upstream said that it did not do it: by a status that the file lists."""
    return arrival.answered in policy.refused


def asks_for_more(policy: Policy, sent: Sent, arrival: Arrival) -> bool:
    """Whether the file lets a request be sent again that was refused like this."""
    if policy.unsafe == "never" or arrival.advised == "false" or arrival.final:
        return False
    if arrival.answered == 425 and sent.early_data:
        return False
    return policy.lists(arrival.answered) or arrival.advised == "true"


def may_follow(script: Script, index: int) -> bool:
    """Whether the arrival after *index* may be."""
    policy, sent, arrivals = script.policy, script.sent, script.arrivals
    before, after = arrivals[index : index + 2]
    if before.body and len(sent.body or b"") > BUFFER and (before.complete or not sent.chunk):
        return False  # it was not kept
    if after.place != "other":
        refused = was_refused(policy, before) and asks_for_more(policy, sent, before)
        return refused or (may_run_twice(policy, sent) and knows_its_key(script, index))
    if before.place == "other":
        return may_run_twice(policy.of("other"), sent)
    if sent.method in SAFE or policy.unsafe == "always":
        return True  # a key proves nothing at another upstream
    if policy.unsafe == "never":
        return False
    return all(arrival.answered in policy.refused for arrival in arrivals[: index + 1])


def ran(script: Script) -> list[Policy]:
    """Whose rules hold where it ran: was read to its end, and not refused afterwards."""
    return [
        script.policy.of(arrival.place)
        for arrival in script.arrivals
        if arrival.complete and not was_refused(script.policy, arrival)
    ]


def complaints(script: Script) -> Iterator[str]:
    """What is wrong with what the upstream saw of a request."""
    for index in range(len(script.arrivals) - 1):
        if not may_follow(script, index):
            yield f"attempt {index + 2} must not be"
    rules = ran(script)
    if len(rules) > 1 and not all(may_run_twice(policy, script.sent) for policy in rules):
        yield "it ran twice"
    yield from differences(script)
    if script.seen is not None:
        told = int(script.seen.get("Holdfast-Attempts") or 1)
        if len(script.arrivals) > told:
            yield f"{told} attempts were told of"
        answered = {arrival.answered for arrival in script.arrivals}
        if "proxy-status" not in script.seen.names and script.seen.status not in answered:
            yield f"somebody else's answer: {script.seen.status}"
        if script.seen.status in {204, 205} and script.seen.body:
            yield "a body where none may be"
        if not script.arrivals and script.seen.status not in {502, 504}:
            yield f"nobody said {script.seen.status}"


def differences(script: Script) -> Iterator[str]:
    """Every attempt is the same, and what the client sent."""
    if len({arrival.head for arrival in script.arrivals} - {b""}) > 1:
        yield "its attempts differ"
    body = script.sent.body or b""
    for arrival in script.arrivals:
        if arrival.complete and arrival.body != body:
            yield "another body arrived"
        if not script.sent.chunk and not body.startswith(arrival.body):
            yield "part of another body arrived"


# The show.


@pytest.mark.parametrize(
    "count",
    [6_000, pytest.param(100_000, marks=[pytest.mark.deep, pytest.mark.timeout(900)])],
)
async def test_a_request_that_may_have_run_is_never_sent_twice(count: int) -> None:
    policies = random_policies(POLICIES)
    troupe = Troupe()
    async with AsyncExitStack() as stack:
        urls = {"dead": f"http://127.0.0.1:{stack.enter_context(refusing_port())}"}
        for place, upstream in troupe.places.items():
            await stack.enter_async_context(upstream)
            urls[place] = upstream.url
        proxy = await stack.enter_async_context(running(configuration(policies, urls)))
        await asyncio.gather(
            *(
                play(proxy, troupe, policies, range(first, count, AT_ONCE))
                for first in range(AT_ONCE)
            )
        )
    scripts = troupe.scripts.values()
    wrong = [f"{what}: {script}" for script in scripts for what in complaints(script)]
    assert not wrong, "\n".join(wrong[:5])
    met = Counter(situation for script in scripts for situation in situations(script))
    assert met.keys() == EXPECTED
    assert min(met.values()) > count / 400, met


async def play(proxy: RunningProxy, troupe: Troupe, policies: list[Policy], numbers: range) -> None:
    """One client's part: one script after the other, over one connection if it lasts."""
    client: RawClient | None = None
    for number in numbers:
        script = random_script(number, policies)
        troupe.scripts[script.target] = script
        troupe.be_rude(Random(-number))
        if client is None:
            client = await proxy.client().__aenter__()
        for piece in script.sent.wire(script.target):
            client.wire.write(piece)
            await asyncio.sleep(0)
        with suppress(WireEnded):
            script.seen = await client.response(script.sent.method)
        if script.sent.pieces > 1 or script.seen is None or script.seen.get("Connection"):
            await client.wire.close_and_wait()
            client = None
    if client is not None:
        await client.wire.close_and_wait()


# What must have been met, or else nothing was tried.

EXPECTED = {
    "ran, and no more",
    "refused, sent again",
    "503, and a key that none honours: not sent again",
    "may run twice, sent again",
    "sent to the other",
    "not sent to the other",
    "broke off while it may have run",
    "too large to be kept",
}


def situations(script: Script) -> Iterator[str]:
    policy, sent, arrivals = script.policy, script.sent, script.arrivals
    harmless = may_run_twice(policy, sent)
    for before, after in pairwise(arrivals):
        if after.place == "other":
            yield "sent to the other"
        elif harmless:
            yield "may run twice, sent again"
        elif before.answered in policy.refused:
            yield "refused, sent again"
    for last in arrivals[-1:]:
        yield from endings(script, last, harmless=harmless)


def endings(script: Script, last: Arrival, *, harmless: bool) -> Iterator[str]:
    """What is remarkable about the last attempt."""
    policy, sent = script.policy, script.sent
    if not harmless and last.complete and not last.answered:
        yield "broke off while it may have run"
    if not harmless and last.complete and policy.falls_back and last.place != "other":
        yield "not sent to the other"
    if len(ran(script)) == 1 and not harmless:
        yield "ran, and no more"
    listed = policy.lists(503) and 503 not in policy.refused
    if not harmless and last.answered == 503 and listed and sent.carries(USUAL_KEY):
        yield "503, and a key that none honours: not sent again"
    if harmless and last.answered == 503 and len(sent.body or b"") > BUFFER:
        yield "too large to be kept"
