"""A process that ends at a chosen place, without a word; run as a module.

It is given the folder, what to do, and the statement before which it ends, if any. Nothing of the
store is replaced: SQLite itself tells which statement it is about to run.
"""

import asyncio
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from proxy.core.clock import SystemClock
from proxy.policy.delivery.state import Delivered, DeliveredResponse, FailedForGood
from proxy.stores.deliveries import Accepted
from tests.stores.deliveries.kit import RAN, URL, new, opened

STATUS = 77
_connect = sqlite3.connect
_fatal = ""


def _traced(*args: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - as connect() has them
    db: sqlite3.Connection = _connect(*args, **options)

    def about_to_run(statement: str) -> None:
        if _fatal and _fatal in statement:
            os._exit(STATUS)

    db.set_trace_callback(about_to_run)
    return db


async def main(folder: str, steps: str, fatal: str) -> None:
    """Do *steps*; before the last one, arm what ends the process; end it after that at the latest.

    Steps: accept, take, deliver, fail, wait (until it is killed).
    """
    global _fatal  # noqa: PLW0603 - the thread of the store reads it
    sqlite3.connect = _traced  # type: ignore[assignment]  # see above
    taken = None
    names = steps.split()
    async with opened(Path(folder), SystemClock()) as store:
        for name in names:
            if name is names[-1]:
                _fatal = fatal
            match name:
                case "accept":
                    answer = await store.accept(new(record="key", fingerprint=b"print", caller="a"))
                    assert isinstance(answer, Accepted)
                case "lead":
                    await store.lead()
                case "take":
                    (taken,) = (await store.take("orders", 1, [URL])).taken
                    sys.stdout.write("taken\n")
                    sys.stdout.flush()
                case "deliver":
                    assert taken is not None
                    ok = Delivered(DeliveredResponse(200, (), b"ok"))
                    await store.settle(taken.delivery, ok, RAN)
                case "fail":
                    assert taken is not None
                    await store.settle(taken.delivery, FailedForGood("exhausted", "500"), RAN)
                case _:
                    await asyncio.Event().wait()
        os._exit(STATUS)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
