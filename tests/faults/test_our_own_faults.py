"""A bug of our own, or what looks like one: an answer all the same, and one line in the log."""

from tests.support import ScriptedUpstream, one_route, running
from tests.support.clock import FakeClock


class BrokenClock(FakeClock):
    """Fails in the middle of a request, when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left: int | None = None

    def monotonic(self) -> float:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left == 0:
                self.calls_left = None
                raise RuntimeError("secret detail")
        return super().monotonic()


async def test_the_client_gets_502_and_the_next_request_is_served() -> None:
    clock = BrokenClock()
    async with ScriptedUpstream() as upstream, running(one_route(upstream), clock=clock) as proxy:
        assert (await proxy.get()).status == 200
        async with proxy.client() as client:
            clock.calls_left = 2  # the first is for the request's own start
            response = await client.get()
            assert (response.status, response.reason_word) == (502, "unknown")
            assert b"secret" not in response.body
        assert (await proxy.get()).status == 200
        [complaint] = proxy.complaints
        assert "secret detail" in complaint
        proxy.complaints.clear()
        assert (await proxy.metrics()).total("holdfast_requests_in_flight") == 0
