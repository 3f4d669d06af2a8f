"""The port between the admin listener and the process that it belongs to."""

from collections.abc import Sequence
from typing import Protocol

from proxy.http.fields import RawHeaders
from proxy.policy.dead_letter import DeadLetter, DeadLetterSummary, Obstacle, Replayed
from proxy.policy.idempotency.record import Released, Shown


class StoreSilent(Exception):
    """The store, or the file of the dead letters, did not answer.

    The operation may have been done all the same.
    """


class Operations(Protocol):
    """What the application lets an operator see and do."""

    def token(self) -> str | None:
        """Return the token that requests must have at present; None if they need none."""

    def not_ready(self) -> str | None:
        """Say why no requests are taken (``starting``, ``draining``); None if they are."""

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that *accept* asks for, and its content type."""

    async def status(self) -> dict[str, object]:
        """Return what goes on, in values that JSON can carry."""

    async def find_attempts(self, request_id: str) -> list[dict[str, object]]:
        """Return the recent notable requests with that id, the oldest first, ready for JSON."""

    def config(self) -> dict[str, object]:
        """Return the configuration in force with its secrets masked, ready for JSON."""

    async def reload(self) -> tuple[bool, Sequence[str]]:
        """Read the configuration again; return whether it is in force now, and the messages.

        The messages are the lines that ``holdfast check`` prints: warnings after
        a success, faults otherwise.
        """

    async def show_key(self, name: str) -> Shown | None:
        """Return what is known of the key whose record is called *name*; None if nothing is.

        Raises StoreSilent.
        """

    async def release_key(self, name: str, *, force: bool) -> Released:
        """Forget a key, unless a running request owns it; with *force* that request loses it.

        The key is then treated as if the request's time were over: unstored if its response has
        begun, else ``on_ambiguous`` decides; held if the request runs in another instance, since
        this one cannot know. Raises StoreSilent; it may have been done all the same.
        """

    # Dead letters. All of these raise StoreSilent.

    async def list_dead_letters(
        self, route: str | None, after: str, limit: int, *, newest: bool
    ) -> list[DeadLetterSummary]:
        """Return up to *limit* dead letters behind *after*, the oldest or the *newest* first."""

    async def find_dead_letter(self, name: str) -> DeadLetter | None:
        """Return all of one dead letter; None if there is none."""

    async def drop_dead_letter(self, name: str) -> bool | None:
        """Delete a dead letter; False if it is being sent again, None if there is none."""

    async def drop_dead_letters(self, route: str | None, until: str) -> int:
        """Delete those of a route, or all, except those being sent again; return how many.

        Only up to the dead letter *until*; empty: up to the newest one.
        """

    async def replay_obstacle(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Obstacle | None:
        """Say why :meth:`replay_dead_letter` would not send it now; None if it would."""

    async def replay_dead_letter(
        self, name: str, given: RawHeaders, *, force: bool
    ) -> Replayed | Obstacle:
        """Send a dead letter again, with the header fields *given* in addition; or say why not."""
