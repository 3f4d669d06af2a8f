"""The ports between packages: protocols by which one uses another without importing it.

======================  ==================================  ====================================
port                    implemented by                      used by
======================  ==================================  ====================================
:class:`RequestBody`    ``server/body``, ``core``           ``upstream``, ``pipeline``
:class:`DeadLetterSink` ``stores/dead_letters``             ``pipeline`` (dead letters)
:class:`QueueEntry`     ``pipeline/throttle``               ``core`` (timeout), ``pipeline``
:class:`SendPermit`     ``pipeline/throttle``               ``upstream``
:class:`Stream`         ``upstream``                        ``server``, ``pipeline``, ``core``
:class:`Receiver`       ``core`` (Exchange), ``pipeline``   ``upstream``, ``pipeline``
:class:`OwnedKey`       ``pipeline/idempotency``            ``upstream``, ``pipeline`` (retry)
:class:`HandOffTicket`  ``pipeline/hand_off``               ``pipeline`` (idempotency), ``observe``
======================  ==================================  ====================================
"""

from typing import Protocol

from proxy.http.refusal import Refusal, RefusalReason
from proxy.http.response_head import ResponseHead
from proxy.policy.attempt import FailureKind
from proxy.policy.dead_letter import DeadLetter
from proxy.policy.idempotency.record import Claim
from proxy.policy.reasons import VerdictReason
from proxy.policy.throttle.wait_queue import ThrottleCause


class Refused(Exception):
    """Raised to end a request with a refusal, an answer of the proxy's own."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class KeyLost(Refused):
    """Raised before a request is sent whose idempotency key another request may own by now."""

    def __init__(self) -> None:
        super().__init__(_KEY_LOST)


_KEY_LOST = Refusal(
    RefusalReason.STORE,
    "The lease of this key could not be renewed in time, so another request may have the key. "
    "Send it again later.",
)


class RequestBody(Protocol):
    """A request body while it is received, and as far as it is kept for another attempt.

    Implemented by ``server/body`` (streaming, buffered) and ``core/clientless.py`` (complete); read
    by ``upstream``, which sends it, and by ``pipeline`` (retries, idempotency keys, dead letters).
    """

    length: int
    """Bytes of the whole body, or CHUNKED."""
    lost: VerdictReason | None
    """Why the body could not be sent a second time; None as long as it could."""

    def will_be_kept(self) -> bool:
        """Whether, by present knowledge, the body could be sent a second time after the first."""

    def begin(self) -> bytes | None:
        """Start from the first byte for one attempt; return the body if it goes with the head.

        None if it is read in pieces. Every attempt gets what the first attempt got.
        """

    def keep(self) -> None:
        """Keep every byte until the next :meth:`begin`, since the body will be sent again."""

    def whole(self) -> bytes | None:
        """Return the whole body before it is first sent, if it has arrived.

        None if it has not: :meth:`read_whole` waits for it. The body is kept as long as it may
        be needed.
        """

    async def read_whole(self) -> bytes:
        """Wait for the whole body before it is first sent; keep it as long as it may be needed.

        Raises :class:`Refused` as :meth:`read` does, and if there is no memory to keep it.
        """

    def kept(self) -> bytes | None:
        """Return the whole body if all of it has arrived and was kept; None if not."""

    async def rest(self) -> bytes | None:
        """Wait until all of the body has arrived; return it if it was kept, None if not.

        No attempt may be reading the body meanwhile. Raises :class:`Refused` as :meth:`read`
        does.
        """

    def is_behind(self) -> bool:
        """Whether the body is waited for and has lately come in below the minimum body rate."""

    def stop(self, refusal: Refusal) -> None:
        """Stop waiting for the body: the task that reads it gets *refusal* raised."""

    async def read(self) -> bytes:
        """Return the next piece of the body, empty at its end.

        Raises :class:`Refused` if the body is malformed, too large, or idle
        for longer than the route allows.
        """


class DeadLetterSink(Protocol):
    """Writes dead letters to disk.

    Implemented by ``stores/dead_letters``, used by ``pipeline`` (dead letters).
    """

    async def keep(self, dead_letter: DeadLetter) -> bool:
        """Write *dead_letter*; return True once it is on disk, False if there is no space for it.

        Raises :class:`proxy.stores.StoreError` if it cannot be written within the sink's own
        time limit.
        """

    def digest(self, content: bytes) -> str:
        """Digest *content*, such as credentials: tells callers apart without revealing it."""


class QueueEntry(Protocol):
    """The entry of an exchange in a throttle's wait queue.

    Implemented by ``pipeline/throttle``; used by :meth:`Exchange.expire` and by ``pipeline`` when
    a drain ends all waits.
    """

    def give_up(self, cause: ThrottleCause) -> None:
        """Leave the queue: the attempt is refused with *cause*."""


class SendPermit(Protocol):
    """The right to send one attempt, reserved at every throttle of its route and upstream.

    Implemented by ``pipeline/throttle`` (the throttle chain), used by ``upstream``, which knows
    when the attempt is really sent.
    """

    queued: float
    """Seconds that the attempt waited for the permit."""

    def reserve(self) -> None:
        """Only reserve the permit: the attempt is not sent yet, so nothing is charged for it.

        Has an effect only in the turn of the event loop in which the permit was given or used.
        """

    async def use(self, deadline: float) -> None:
        """Charge the permit, since the attempt is sent now; wait if the limits do not allow it yet.

        Raises :class:`Refused` if they will not allow it before *deadline*.
        """

    def close(self, *, sent: bool = True) -> None:
        """End the permit with its attempt; if the attempt was not *sent*, nothing is charged.

        ``sent=False`` has an effect only in the turn of the event loop that :meth:`reserve` names.
        """


class Stream(Protocol):
    """The upstream's side of a response that is being relayed: back-pressure, abort and tunnel.

    Implemented by ``upstream`` (a call), used by ``server`` (a slow client), ``pipeline`` (dead
    letters) and ``core`` (:meth:`Exchange.expire`).
    """

    def pause_reading(self) -> None:
        """Read no more from the upstream until :meth:`resume_reading`."""

    def resume_reading(self) -> None:
        """Read from the upstream again."""

    def fail(self, kind: FailureKind) -> None:
        """Abort the attempt: its connection is closed, and it ends as *kind*."""

    def write(self, data: bytes) -> None:
        """Send bytes of the client to the upstream, once the connection has become a tunnel."""


class Receiver(Protocol):
    """Receives an upstream's response as it arrives.

    Implemented by :class:`~proxy.core.exchange.Exchange`, which relays to the client, and by
    ``pipeline`` (response capture, delayed relay); called by ``upstream``, and by ``pipeline`` for
    the receiver behind its own.
    """

    @property
    def reads_ahead(self) -> bool:
        """Whether the receiver takes everything at once, however slowly the client reads."""

    def relay_head(self, head: ResponseHead, pieces: list[bytes], *, complete: bool) -> None:
        """Take the head and *pieces*, the body so far. No retry is possible after this."""

    def relay_data(self, pieces: list[bytes], *, complete: bool) -> None:
        """Take more of the body."""

    def relay_cut(self) -> None:
        """Learn that the body broke off."""

    def outlive_client(self) -> bool:
        """Whether the request goes on although its client has just disconnected."""


class OwnedKey(Protocol):
    """An idempotency key, as the request that owns it sees it.

    Implemented by ``pipeline/idempotency`` (a key in flight); read by ``upstream`` before every
    send, and by ``pipeline`` before every retry.
    """

    claim: Claim
    """What was claimed: the name of the record, the fingerprint of the request."""
    owned_until: float
    """Monotonic seconds up to which no other request can own the key; infinite where the store is
    this process's own, so that none can take it over."""


class HandOffTicket(Protocol):
    """How a request is handed off, as far as others have to know.

    Implemented by ``pipeline/hand_off``; read by ``pipeline/idempotency`` and ``observe``.
    """

    delivery_id: str
    """The id of the delivery that the request became; empty as long as it is none."""
    comes_first: bool
    """Whether the request is on disk as a delivery before any attempt is made."""
    result_lasts: float
    """Seconds for which the delivery's acceptance is the result of the request's key, besides the
    key's own ``ttl``."""
