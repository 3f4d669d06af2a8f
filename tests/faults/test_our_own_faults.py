"""A bug of our own, or what looks like one: an answer all the same, and one line in the log."""

from tests.support import ScriptedUpstream, one_route, running
from tests.support.clock import FakeClock
from tests.support.records import last_logged, outcomes


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


async def test_a_fault_inside_an_attempt_is_recorded_as_its_outcome() -> None:
    clock = BrokenClock()
    async with ScriptedUpstream() as upstream, running(one_route(upstream), clock=clock) as proxy:
        async with proxy.client() as client:
            clock.calls_left = 4  # the attempt has begun, and is about to connect
            response = await client.get()
            assert (response.status, response.reason_word) == (502, "unknown")
            assert response.problem["attempts"] == 1
            assert (await client.get()).status == 200, "and the connection goes on"
        [complaint] = proxy.complaints
        assert "secret detail" in complaint
        proxy.complaints.clear()
        first, _ = await proxy.logged(2)
        assert (first["code"], outcomes(first)) == (502, ["unknown"])
        assert not first["attempts"][0]["sent"]
        await last_logged(proxy, 2)
