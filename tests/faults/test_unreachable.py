"""No connection can be made: nothing was sent, and the client is told at once."""

from tests.support import ScriptedUpstream, now, one_route, running, virtual_time
from tests.support.names import Names
from tests.support.ports import black_hole, refusing_port
from tests.support.records import last_logged, outcomes

pytestmark = virtual_time


async def test_a_refused_connection_is_502_at_once() -> None:
    with refusing_port() as port:
        async with running(one_route(f"http://127.0.0.1:{port}")) as proxy:
            response = await proxy.get()
            assert (response.status, response.reason_word) == (502, "connect")
            assert response.problem["attempts"] == 1
            record = await last_logged(proxy)
            assert outcomes(record) == ["connect"]
            assert record["refusal"] == "connect"
            assert record["attempts"][0] == record["attempts"][0] | {
                "n": 1,
                "upstream": "scripted",
                "address": f"127.0.0.1:{port}",
                "status": None,
                "sent": False,
                "received": False,
                "reused": False,
            }
            assert record["duration_ms"] < 500
            assert proxy.open_upstream_connections == 0


async def test_the_answer_does_not_tell_where_the_upstream_is() -> None:
    with refusing_port() as port:
        async with running(one_route(f"http://127.0.0.1:{port}")) as proxy:
            response = await proxy.get()
            assert str(port).encode() not in response.raw_head + response.body


async def test_an_upstream_that_comes_back_is_used_again() -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        await upstream.stop()
        assert (await proxy.get()).status == 502
        async with ScriptedUpstream(port=upstream.port):
            assert (await proxy.get()).status == 200
        record = await last_logged(proxy, 2)
        assert outcomes(record) == ["2xx"]


async def test_connect_timeout_bounds_a_connection_that_nobody_takes() -> None:
    with black_hole() as port:
        config = one_route(f"http://127.0.0.1:{port}", options="connect_timeout: 50ms")
        async with running(config) as proxy:
            began = now()
            response = await proxy.get()
            assert 0.045 <= now() - began < 1
            assert (response.status, response.reason_word) == (502, "connect")
            assert outcomes(await last_logged(proxy)) == ["connect"]
            assert proxy.open_upstream_connections == 0


async def test_the_route_s_timeout_bounds_connecting_too() -> None:
    with black_hole() as port:
        async with running(one_route(f"http://127.0.0.1:{port}", "timeout: 50ms")) as proxy:
            began = now()
            response = await proxy.get()
            assert 0.045 <= now() - began < 1
            assert (response.status, response.reason_word) == (504, "timeout")
            # The attempt never got as far as sending: repeating it would do no harm.
            assert outcomes(await last_logged(proxy)) == ["connect"]


async def test_a_name_that_nobody_knows_is_502() -> None:
    names = Names()
    async with running(one_route("http://nowhere.example:80")) as proxy:
        response = await proxy.get()
        assert (response.status, response.reason_word) == (502, "connect")
        assert outcomes(await last_logged(proxy)) == ["connect"]
        assert names.asked == ["nowhere.example"]


async def test_a_name_service_that_does_not_answer_is_bounded_by_connect_timeout() -> None:
    names = Names()
    names.fall_silent()
    config = one_route("http://nowhere.example:80", options="connect_timeout: 50ms")
    async with running(config) as proxy:
        response = await proxy.get()
        assert (response.status, response.reason_word) == (502, "connect")
        assert outcomes(await last_logged(proxy)) == ["connect"]


async def test_one_name_that_fails_does_not_take_the_other_along() -> None:
    async with ScriptedUpstream() as upstream:
        Names(known=["127.0.0.1"])
        config = one_route(f"http://unknown:80, http://known:{upstream.port}")
        async with running(config) as proxy:
            assert (await proxy.get()).status == 200
            assert outcomes(await last_logged(proxy)) == ["2xx"]


async def test_a_name_appears_and_is_used_without_a_restart() -> None:
    names = Names()
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(f"http://late.example:{upstream.port}")) as proxy,
    ):
        assert (await proxy.get()).status == 502
        names.set("late.example", "127.0.0.1")
        assert (await proxy.get()).status == 200
        assert outcomes(await last_logged(proxy, 2)) == ["2xx"]
