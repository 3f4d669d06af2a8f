"""Dead letters for tests that need some."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.policy.dead_letter import (
    DeadLetter,
    DeadLetterState,
    DeadLetterSummary,
    Missing,
    ReplayRun,
    dead_letter_id,
)
from proxy.policy.failure_category import FailureCategory
from proxy.stores.dead_letters import DeadLetterStore

CREATED = 4_000_000_000.0
"""In a distant future: to the real clock nothing of it has expired."""
DAY = 86_400.0


def letter(
    number: int = 1,
    *,
    route: str = "all",
    body: bytes = b"pay",
    missing: Missing | None = None,
    may_have_run: bool = False,
    ttl: float = DAY,
    record: str = "",
    holder: str = "",
    caller: str = "",
    credentials: tuple[str, ...] = (),
) -> DeadLetter:
    """The letter of that number: later ones sort behind earlier ones."""
    created = CREATED + number
    return DeadLetter(
        summary=DeadLetterSummary(
            id=dead_letter_id(int(created * 1000), number),
            created=created,
            expires=created + ttl,
            route=route,
            method="POST",
            target="/charges?a=b",
            request_id=f"request-{number}",
            error="503",
            category=FailureCategory.TRANSIENT,
            verdict="attempts_exhausted",
            used=1,
            allowed=3,
            may_have_run=may_have_run,
            state=DeadLetterState.WAITING,
            replays=0,
            size=len(body),
            missing=missing,
            caller=caller,
            credentials=credentials,
        ),
        headers=((b"Content-Type", b"text/plain"), (b"X-Name", b"\xe9")),
        dropped=("Authorization",),
        body=body,
        peer="192.0.2.7",
        scheme="http",
        record=record,
        fallback="",
        holder=holder,
        runs=(ReplayRun(created, "failed", ({"n": 1, "outcome": "5xx", "status": 503},)),),
    )


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Nobody can write letters meanwhile."""
    db = sqlite3.connect(state_dir / "letters.db", isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
    finally:
        db.rollback()
        db.close()


async def every_letter(store: DeadLetterStore) -> list[DeadLetter]:
    """Return all dead letters of *store*, the oldest one first."""
    found: list[DeadLetter] = []
    while page := await store.page(after=found[-1].id if found else ""):
        for summary in page:
            whole = await store.find(summary.id)
            assert whole is not None
            found.append(whole)
    return found
