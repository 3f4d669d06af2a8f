"""Deliveries to keep, and a store of them on a clock that a test sets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from proxy.core.clock import SystemClock
from proxy.core.ids import new_delivery_id
from proxy.policy.delivery.state import DeliveryRun, LetterTerms
from proxy.stores.deliveries import Abandoned, Accepted, FileDeliveryStore, NewDelivery

DAY = 86_400.0
ROOM = {"entries": 1000, "size": 10 * 1024**2}
URL = "http://api.test:80"
RAN = DeliveryRun(1.0, "failed", ({"n": 1, "outcome": "timeout"},), may_have_run=True, urls=(URL,))
DID_NOT_RUN = DeliveryRun(1.0, "refused", ({"n": 1, "outcome": "connect"},))
LETTER = LetterTerms(30 * DAY, 20)
_numbers = count(1)


class Times(SystemClock):
    """A clock that a test sets; both kinds of time pass by :meth:`pass_by`."""

    def __init__(self, wall: float = 1.8e9) -> None:
        self.date = wall
        self.now = 1000.0
        self.wall = lambda: self.date
        self.monotonic = lambda: self.now

    def pass_by(self, seconds: float) -> None:
        self.date += seconds
        self.now += seconds


def new(**given: Any) -> NewDelivery:  # noqa: ANN401 - the fields of a delivery
    """A delivery that nothing is special about, but for what is given."""
    number = next(_numbers)
    fields: dict[str, Any] = {
        "id": new_delivery_id(),
        "route": "orders",
        "upstream": "api",
        "method": "POST",
        "target": f"/orders/{number}",
        "headers": ((b"Content-Type", b"text/plain"), (b"X-Number", b"%d" % number)),
        "body": b"order %d" % number,
        "request_id": f"r-{number}",
        "caller": "10.0.0.1",
        "give_up_after": 3 * DAY,
        "ttl": DAY,
        "letter": LETTER,
    }
    return NewDelivery(**{**fields, **given})


@asynccontextmanager
async def opened(
    folder: Path,
    clock: SystemClock | None = None,
    **options: Any,  # noqa: ANN401 - of the store
) -> AsyncIterator[FileDeliveryStore]:
    store = FileDeliveryStore(str(folder), clock or Times(), **{**ROOM, **options})
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def accepted(store: FileDeliveryStore, **given: Any) -> Accepted:  # noqa: ANN401 - as new()
    answer = await store.accept(new(**given))
    assert isinstance(answer, Accepted), answer
    return answer


def again(_: object) -> Abandoned:
    """Decide that a try whose owner died is repeated."""
    return Abandoned(repeatable=True, delay=5)


def never(_: object) -> Abandoned:
    """Decide that a try whose owner died is not repeated."""
    return Abandoned(repeatable=False)
