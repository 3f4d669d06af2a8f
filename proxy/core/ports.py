"""The ports between rooms: what one room asks of another without importing it."""

from typing import Protocol

from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import ResponseHead
from proxy.policy.attempt import FailureKind
from proxy.policy.dead_letter import DeadLetter
from proxy.policy.reasons import VerdictReason
from proxy.policy.throttle.wait_queue import ThrottleCause


class Refused(Exception):
    """A request that ends here, with an answer of our own."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class KeyLost(Refused):
    """A request that may not be sent, since its idempotency key may be another one's by now."""

    def __init__(self) -> None:
        super().__init__(_KEY_LOST)


_KEY_LOST = Refusal(
    RefusalReason.STORE,
    "The store could not be told in time that this request still runs, so another one may have its "
    "key. Send it again later.",
)


class RequestBody(Protocol):
    """A request body on its way in."""

    length: int
    """Bytes in all, or CHUNKED."""
    lost: VerdictReason | None
    """Why it could not be sent a second time; None as long as it could."""

    def will_be_kept(self) -> bool:
        """Whether it could be sent a second time once it was sent, as far as one can tell."""

    def begin(self) -> bytes | None:
        """From its first byte, for one attempt: the whole body if it goes out with the head.

        None if it is read in pieces. What the first attempt got, all the others get.
        """

    def keep(self) -> None:
        """It will be sent again: nothing of it is given up before :meth:`begin`."""

    def whole(self) -> bytes | None:
        """All of it, before it is first sent, if it is here; None: :meth:`read_whole` has it.

        It is kept as long as it may be needed.
        """

    async def read_whole(self) -> bytes:
        """All of it, before it is first sent; it is kept as long as it may be needed.

        Raises :class:`Refused` as :meth:`read` does, and if there is no room for it.
        """

    def kept(self) -> bytes | None:
        """All of it, if all has come and was kept; None if not."""

    async def rest(self) -> bytes | None:
        """The same once all has come, for which nobody else may be reading it.

        Raises :class:`Refused` as :meth:`read` does.
        """

    def is_behind(self) -> bool:
        """Whether it is waited for, and has brought less than the rate it must keep to lately."""

    def stop(self, refusal: Refusal) -> None:
        """Wait for it no longer: whoever reads it gets *refusal*."""

    async def read(self) -> bytes:
        """The next piece, or nothing at the end.

        Raises :class:`Refused` if the body is malformed, too large, or silent
        for longer than the route allows.
        """


class DeadLetterSink(Protocol):
    """Where dead letters go."""

    async def keep(self, letter: DeadLetter) -> bool:
        """Write it down; True once it is on disk, False if there is no room for it.

        Raises :class:`proxy.stores.StoreError` if it cannot be written, within a time of its own.
        """

    def digest(self, content: bytes) -> str:
        """Tell callers apart by *content*, such as credentials, without giving it away."""


class QueueEntry(Protocol):
    """Where an exchange stands in line."""

    def give_up(self, cause: ThrottleCause) -> None:
        """It waits no longer: its turn has not come."""


class SendPermit(Protocol):
    """The right to send one request, from those who limit how many there are."""

    queued: float
    """Seconds it took to get it."""

    def reserve(self) -> None:
        """The request is not sent yet: nothing is spent on it.

        In the turn in which the pass was got or used; later it means nothing.
        """

    async def use(self, deadline: float) -> None:
        """The request is sent now. Waits if that is not allowed any more, or not yet.

        Raises :class:`Refused` if it is not going to be before *deadline*.
        """

    def close(self, *, sent: bool = True) -> None:
        """The request is over; if it was not *sent*, nothing is spent on it.

        That means as little as :meth:`reserve` once the turn is over.
        """


class Stream(Protocol):
    """The upstream's side of a response that is being relayed."""

    def pause_reading(self) -> None:
        """Send no more until :meth:`resume_reading`."""

    def resume_reading(self) -> None:
        """Go on."""

    def fail(self, kind: FailureKind) -> None:
        """Give it up: the connection is closed, the attempt ends as *kind*."""

    def write(self, data: bytes) -> None:
        """Bytes from the client, once the connection has become a tunnel."""


class Receiver(Protocol):
    """Who gets an upstream's response as it arrives."""

    @property
    def reads_ahead(self) -> bool:
        """Whether it takes everything at once, however slowly the client reads."""

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """The head, with what has come of the body. No way back after this."""

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """More of the body."""

    def relay_cut(self) -> None:
        """The body broke off."""

    def outlive_client(self) -> bool:
        """The client has left: whether its request goes on all the same."""


class OwnedKey(Protocol):
    """An idempotency key, for the request that owns it."""

    mine_until: float
    """Monotonic seconds up to which nobody else can have it, infinite where nobody else could
    ask for it. Looked at before every send."""
