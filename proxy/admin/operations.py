"""What the admin listener can ask of the process that it belongs to."""

from collections.abc import Sequence
from typing import Protocol

from proxy.http.fields import RawHeaders
from proxy.policy.dead_letter import DeadLetter, DeadLetterSummary, Obstacle, Replayed
from proxy.policy.idempotency.record import Released, Shown


class StoreSilent(Exception):
    """The store did not say what is known of a key, or did not do what was asked for.

    Or the file of the dead letters did not.
    """


class Operations(Protocol):
    """What the application lets an operator see and do."""

    def token(self) -> str | None:
        """The token to ask for at present, or None to ask for none."""

    def not_ready(self) -> str | None:
        """Why no requests are taken (``starting``, ``draining``); None if they are."""

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the format that *accept* asks for, and its content type."""

    async def status(self) -> dict[str, object]:
        """What goes on, in values that JSON can carry."""

    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        """The recent notable requests with that id, the oldest first, ready for JSON."""

    def config(self) -> dict[str, object]:
        """The configuration in force with its secrets masked, ready for JSON."""

    async def reload(self) -> tuple[bool, Sequence[str]]:
        """Read the configuration again; whether it is in force now, and the messages.

        The messages are the lines that ``holdfast check`` prints: warnings after
        a success, faults otherwise.
        """

    async def show_key(self, name: str) -> Shown | None:
        """What is known of the key whose record has that name; None if nothing is.

        Raises StoreSilent.
        """

    async def release_key(self, name: str, *, force: bool) -> Released:
        """Forget a key, unless a request that runs has it; with *force* that one loses it.

        It is then as if its time were over: unstored if its response has begun, else
        ``on_ambiguous`` decides; held if it runs elsewhere, since nobody here knows. Raises
        StoreSilent; it may have been done all the same.
        """

    # Dead letters. All of these raise StoreSilent.

    async def list_dead_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Up to *limit* letters behind *after*; the oldest one first, or the *newest*."""

    async def find_dead_letter(self, letter: str) -> DeadLetter | None:
        """All of one letter; None if there is none."""

    async def drop_dead_letter(self, letter: str) -> bool | None:
        """Delete it; False if it is being sent again, None if there is none."""

    async def drop_dead_letters(self, route: str | None, until: str) -> int:
        """Delete all of a route, or all, but for those that are being sent again; how many.

        Up to the letter *until*; empty: up to the newest one.
        """

    async def replay_obstacle(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | None:
        """Why :meth:`replay_dead_letter` would not send it now; None if it would."""

    async def replay_dead_letter(
        self, letter: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        """Send it again, with the header fields that are *given* besides; or say why not."""
