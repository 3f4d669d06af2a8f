"""Idempotency keys in any state, put into the store of a running proxy."""

from proxy.policy.idempotency.record import Claim, ClaimAnswer, Ending, RecordState
from proxy.stores import IdempotencyStore
from tests.support.proxies import RunningProxy

RECORD = "5f0c2a7be1d94c3388a6d0f1e2b3c4d5"
OWNER = "owner-1"
DAY = 86400.0


def claims_of(proxy: RunningProxy) -> IdempotencyStore:
    """What the proxy knows of keys."""
    return proxy.app._in_flight_keys.store


async def claim(
    proxy: RunningProxy, *, owner: str = OWNER, takes_over: bool = False
) -> ClaimAnswer:
    """Ask for the key of RECORD, on the route ``charges``: for 30 s at first, and a day in all."""
    ask = Claim(RECORD, owner, b"f" * 32, "charges", 30.0, DAY, takes_over)
    return (await claims_of(proxy).claim(ask)).answer


async def settle(proxy: RunningProxy, state: RecordState, result: bytes = b"") -> bool:
    """End what OWNER has begun; whether it was still its own."""
    return await claims_of(proxy).settle(RECORD, OWNER, Ending(state, DAY, result))


async def put_key(proxy: RunningProxy, state: RecordState, result: bytes = b"") -> None:
    """Let the key of RECORD be in *state*."""
    assert await claim(proxy) is ClaimAnswer.NEW
    if state is not RecordState.IN_FLIGHT:
        assert await settle(proxy, state, result)
