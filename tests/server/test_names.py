"""``name``: who we are to the proxies before and behind us, in Via, Proxy-Status and loops."""

import pytest

from tests.support import (
    RunningProxy,
    ScriptedUpstream,
    answer,
    ok,
    one_route,
    request,
    running,
    running_together,
)
from tests.support.keys import keyed


async def test_its_name_stands_in_via_both_ways() -> None:
    async with (
        ScriptedUpstream(answer(ok(b"", "Via: 1.1 behind"))) as upstream,
        running(one_route(upstream, top="name: egress")) as proxy,
    ):
        got = await proxy.get("/", "Via: 1.0 before")
        assert got.get("Via") == "1.1 behind, 1.1 egress"
        assert upstream.requests[0].get("Via") == "1.0 before, 1.1 egress"
        upstream.script(answer(ok()))
        got = await proxy.get("/", "Via: 1.1 holdfast")
        assert (got.status, got.get("Via")) == (200, "1.1 egress")
        assert upstream.requests[1].get("Via") == "1.1 holdfast, 1.1 egress"


@pytest.mark.parametrize(("name", "spelled"), [("egress", "egress"), ("2nd", '"2nd"')])
async def test_its_name_stands_in_proxy_status(name: str, spelled: str) -> None:
    config = one_route("http://127.0.0.1:1", "fallback: {status: 200}", top=f"name: {name}")
    async with running(config) as proxy:
        assert (await proxy.get()).get("Proxy-Status") == f'{spelled}; details="fallback"'
    async with running(f"name: {name}\nupstreams: {{}}\nroutes: []") as proxy:
        refused = await proxy.get()
        assert refused.status == 404
        assert refused.get("Proxy-Status") == f"{spelled}; error=destination_not_found"
        assert b"urn:holdfast:problem:no_route" in refused.body


async def reload_with(proxy: RunningProxy, old: str, new: str) -> None:
    text = proxy.config.read_text()
    assert old in text
    proxy.config.write_text(text.replace(old, new))
    assert (await proxy.admin("POST", "/-/reload")).status == 200


async def test_two_in_a_row_need_two_names() -> None:
    async with ScriptedUpstream() as upstream:
        configs = one_route("http://127.0.0.1:1"), one_route(upstream)
        async with running_together(*configs) as (outer, inner):
            await reload_with(outer, "127.0.0.1:1]", f"127.0.0.1:{inner.port}]")
            looped = await outer.get()
            assert (looped.status, looped.reason_word) == (508, "loop")
            assert "write name: holdfast-2 (say)" in looped.problem["detail"]
            assert not upstream.requests
            # A reload is enough, of either of them.
            await reload_with(outer, "upstreams:", "name: sidecar\nupstreams:")
            got = await outer.get()
            assert (got.status, got.get("Via")) == (200, "1.1 holdfast, 1.1 sidecar")
            assert upstream.requests[0].get("Via") == "1.1 sidecar, 1.1 holdfast"


async def test_a_real_loop_is_found_whatever_the_name() -> None:
    async with running(one_route("http://127.0.0.1:1", top="name: egress")) as proxy:
        await reload_with(proxy, "127.0.0.1:1]", f"127.0.0.1:{proxy.port}]")
        looped = await proxy.get()
        assert looped.status == 508
        assert b"a proxy called egress" in looped.body


@pytest.mark.parametrize("field", ["X-Idem", "X-Account", "X-Once", "X-Plan", "X-Tenant"])
async def test_what_the_file_names_is_not_taken_out_by_connection(field: str) -> None:
    settings = "{header: X-Idem, scope: [header:X-Account]}"
    route = "throttle: {concurrency: 9, key: 'header:X-Tenant'}"
    options = "honours_key: X-Once"
    async with keyed(settings, route, options=options) as (upstream, proxy):
        match = "match: {path: /**, headers: {X-Plan: paid}}"
        await reload_with(proxy, "match: /**", match)
        fields = ["X-Idem: 1", "X-Account: a", "X-Once: 1", "X-Plan: paid", "X-Tenant: t"]
        async with proxy.client() as client:
            connection = f"Connection: {field}, X-Other"
            await client.send(request("POST", "/", *fields, "X-Other: o", connection, body=b"a"))
            assert (await client.response("POST")).status == 200
        seen = upstream.requests[0]
        assert seen.get(field) == dict(line.split(": ") for line in fields)[field]
        assert seen.get("X-Other") is None
