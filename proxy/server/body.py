"""A request body on its way in, read from aiohttp's parser."""

from typing import TYPE_CHECKING

from aiohttp.streams import StreamReader

from proxy.core import Refused
from proxy.policy.refusal import Reason, Refusal
from proxy.server.silence import Silence

if TYPE_CHECKING:
    from proxy.server.exchange import ClientExchange

TOO_LARGE = Refusal(Reason.BODY_TOO_LARGE, "Send a smaller body.", close=True)
MALFORMED = Refusal(Reason.BAD_REQUEST, "The request's body is malformed.", close=True)
_SILENT = Refusal(Reason.SLOW_CLIENT, "The rest of the body did not come in time.", close=True)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientBody:
    """Implements :class:`proxy.core.RequestBody`."""

    __slots__ = (
        "_exchange",
        "_limit",
        "_payload",
        "_seen",
        "_silence",
        "_streamed",
        "_whole",
        "length",
        "waits_for_continue",
    )

    def __init__(
        self, exchange: "ClientExchange", payload: StreamReader, length: int, *, expects: bool
    ) -> None:
        self.length = length
        self._exchange = exchange
        self._payload = payload
        self._limit = exchange.route.settings.max_body
        self._seen = 0
        self._silence: Silence | None = None
        self._streamed = False
        self._whole: bytes | None = None
        self.waits_for_continue = expects
        """Whether the client wants our word before it sends (Expect)."""

    def take_whole(self) -> bytes | None:
        """All of it, if it has arrived; the same again when asked again.

        A body that was once read piece by piece is never whole any more, even if
        no piece came: its head has told the upstream to expect pieces.
        """
        if self._whole is None and not self._streamed and self._payload.is_eof():
            self.waits_for_continue = False
            self._whole = self._payload.read_nowait()
            self._count(len(self._whole))
        return self._whole

    async def read(self) -> bytes:
        """The next piece, or nothing at the end."""
        self._streamed = True
        exchange = self._exchange
        if self.waits_for_continue:
            # Only now is it certain that somebody wants the body.
            self.waits_for_continue = False
            exchange.write_interim(_CONTINUE)
        exchange.waiting_since = exchange.now()
        self._watch()
        try:
            data = await self._payload.readany()
        except Refused:
            raise
        except Exception as error:
            raise Refused(MALFORMED) from error
        finally:
            exchange.client_wait += exchange.now() - exchange.waiting_since
            exchange.waiting_since = 0.0
        self._count(len(data))
        return data

    def fail(self) -> None:
        """The parser gave up on the rest: whoever reads it shall know."""
        self._payload.set_exception(Refused(MALFORMED))

    def close(self) -> None:
        """Nobody will read on."""
        if self._silence is not None:
            self._silence.stop()
            self._silence = None

    def _watch(self) -> None:
        limit = self._exchange.route.settings.idle_timeout
        if self._silence is not None:
            self._silence.moved()
        elif limit is not None:
            self._silence = Silence(self._exchange.loop, limit, self._fell_silent)

    def _fell_silent(self) -> None:
        self._silence = None
        # If nobody was waiting for the client, it is not the client who is slow.
        if self._exchange.waiting_since:
            self._payload.set_exception(Refused(_SILENT))

    def _count(self, size: int) -> None:
        self._seen += size
        if self._limit is not None and self._seen > self._limit:
            raise Refused(TOO_LARGE)
