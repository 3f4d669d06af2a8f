"""The Lua scripts that the server runs for us: one file each, one atomic step each.

Text only: this package imports nothing of ours.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """A script that the server runs in one step."""

    text: str
    digest: str
    """SHA-1 by which a server knows a script that it has seen before."""
    answers: int
    """How many values it answers at least."""


def _script(name: str, answers: int) -> Script:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    # The name that the server gives it, not a safeguard.
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(text, digest, answers)


PERMITS = _script("permits.lua", 4)
CONCURRENCY = _script("concurrency.lua", 1)
BEAT = _script("beat.lua", 1)

CLAIM = _script("claim.lua", 1)
SETTLE = _script("settle.lua", 1)
RENEW = _script("renew.lua", 1)
SHOW = _script("show.lua", 1)
DROP = _script("drop.lua", 1)
REVOKE = _script("revoke.lua", 1)

OPERATIONS = (
    *("connect", "subscribe", "beat"),
    *("take", "pause", "places"),
    *("claim", "fetch", "settle", "renew", "admin"),
)
"""The store's operations, for metrics: each is counted and timed under one of these."""
