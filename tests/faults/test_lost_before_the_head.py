"""The connection ends before there is a response: 502, and nobody is asked twice.

The request may have run, so a route without a retry policy does not repeat it. Only
a connection that had been idle may be replaced (``test_stale_connections.py``).
"""

import pytest

from tests.support import (
    Behaviour,
    RunningProxy,
    ScriptedUpstream,
    answer_and_close,
    answer_and_reset,
    both_loops,
    close_at_once,
    eventually,
    hang_up,
    one_route,
    reset,
    reset_at_once,
    running,
)
from tests.support.records import last_logged, outcomes
from tests.support.upstream import Greeting

HALF_A_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/pl"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"


async def assert_lost(proxy: RunningProxy, method: str, *, received: bool) -> None:
    body = b"payload" if method in {"POST", "PATCH", "PUT"} else None
    async with proxy.client() as client:
        response = await client.request(method, "/", body=body)
        assert (response.status, response.reason_word) == (502, "reset")
        assert response.problem["attempts"] == 1
        record = await last_logged(proxy)
        assert outcomes(record) == ["reset"]
        [attempt] = record["attempts"]
        assert (attempt["sent"], attempt["received"]) == (True, received)
        assert (attempt["status"], attempt["reused"]) == (None, False)
        assert proxy.open_upstream_connections == 0
        # The client's own connection is as good as before.
        assert (await client.get()).status == 200


@both_loops
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST", "PATCH"])
@pytest.mark.parametrize(
    ("fault", "received"),
    [
        pytest.param(reset, False, id="RST without a word"),
        pytest.param(hang_up, False, id="FIN without a word"),
        pytest.param(answer_and_reset(HALF_A_HEAD), True, id="RST inside the head"),
        pytest.param(answer_and_close(HALF_A_HEAD), True, id="FIN inside the head"),
        pytest.param(answer_and_reset(INTERIM), True, id="RST after an interim response"),
        pytest.param(answer_and_close(b"HTTP/1."), True, id="FIN inside the status line"),
    ],
)
async def test_one_request_reaches_the_upstream_and_the_client_gets_502(
    method: str, fault: Behaviour, *, received: bool
) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(fault)
        await assert_lost(proxy, method, received=received)
        assert [request.method for request in upstream.requests] == [method, "GET"]


@pytest.mark.parametrize("greeting", [reset_at_once, close_at_once])
async def test_a_connection_that_ends_before_it_carried_a_request(greeting: Greeting) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.greet(greeting)
        response = await proxy.get()
        assert response.status == 502
        # Whether it was noticed before or after sending is up to the network.
        assert outcomes(await last_logged(proxy)) in (["reset"], ["connect"])
        assert upstream.requests == []
        assert proxy.open_upstream_connections == 0


@pytest.mark.parametrize("fault", [reset, hang_up])
async def test_an_upload_that_is_cut_off_is_not_repeated(fault: Behaviour) -> None:
    async with ScriptedUpstream() as upstream, running(one_route(upstream)) as proxy:
        upstream.script(fault)
        async with proxy.client() as client:
            head = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
            await client.send(head + b"01234")
            await eventually(lambda: len(upstream.requests) == 1)
            await client.send(b"56789")
            response = await client.response("PUT")
        assert (response.status, response.reason_word) == (502, "reset")
        assert outcomes(await last_logged(proxy)) == ["reset"]
        assert len(upstream.requests) == 1
