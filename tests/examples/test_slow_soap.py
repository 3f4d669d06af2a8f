"""A SOAP service that bears four calls at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.examples.example import Example
from tests.support import (
    Response,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    eventually,
    hang_up,
    response,
    virtual_time,
)
from tests.support.throttles import in_queue

pytestmark = virtual_time


EXAMPLE = Example("slow-soap.yaml")

READ = 'SOAPAction: "urn:erp:GetStock"'
WRITE = 'SOAPAction: "urn:erp:PlaceOrder"'
ENVELOPE = b"<soap:Envelope/>"
FAULT = response(500, b"<soap:Fault/>", "Content-Type: text/xml")


class Erp:
    """Takes its time, and notes how many calls are under way."""

    def __init__(self) -> None:
        self.under_way = 0
        self.most = 0
        self.go_on = asyncio.Event()

    async def __call__(self, visit: Visit) -> None:
        await visit.read_body()
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.go_on.wait()
        await asyncio.sleep(0.005)
        self.under_way -= 1
        await visit.send(response(200, b"<soap:Body/>"))


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[ScriptedUpstream, RunningProxy]]:
    async with ScriptedUpstream() as erp:
        overlay = f"""
            upstreams: {{erp: {{urls: [{erp.url}]}}}}
            defaults: {{retry: {{backoff: {{base: 1ms}}}}}}
        """
        async with EXAMPLE.running(overlay) as proxy:
            yield erp, proxy


async def call(proxy: RunningProxy, action: str) -> Response:
    async with proxy.client() as client:
        return await client.request("POST", "/services/stock", action, body=ENVELOPE)


async def test_four_calls_are_under_way_at_most_and_all_others_wait() -> None:
    erp = Erp()
    async with stage() as (upstream, proxy):
        upstream.usual = erp
        calls = [asyncio.create_task(call(proxy, (READ, WRITE)[n % 2])) for n in range(20)]
        await in_queue(proxy, 16, "upstream", "erp")
        await eventually(lambda: erp.under_way == 4)
        erp.go_on.set()
        assert {got.status for got in await asyncio.gather(*calls)} == {200}
        assert erp.most == 4


async def test_a_call_that_reads_is_repeated() -> None:
    async with stage() as (upstream, proxy):
        upstream.script(hang_up)
        assert (await call(proxy, READ)).status == 200
        assert [seen.body for seen in upstream.requests] == [ENVELOPE, ENVELOPE]


async def test_a_call_that_may_have_run_is_not() -> None:
    async with stage() as (upstream, proxy):
        upstream.script(hang_up)
        assert (await call(proxy, WRITE)).status == 502
        assert len(upstream.requests) == 1


async def test_a_fault_is_an_answer() -> None:
    async with stage() as (upstream, proxy):
        upstream.usual = answer(FAULT)
        for action in (READ, WRITE):
            got = await call(proxy, action)
            assert (got.status, got.body) == (500, b"<soap:Fault/>")
        assert len(upstream.requests) == 2
