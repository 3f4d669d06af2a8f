"""Request bodies kept for another attempt: each attempt carries the same bytes, framed alike.

However a body comes (at once, piece by piece, while its first attempt is already being
answered), what the upstream reads is compared with what the client sent, by SHA-256.
"""

from hashlib import sha256

import pytest

from tests.server.replaying import UNAVAILABLE, Framed, body_of, by_chunks, by_length, kept_by
from tests.support import (
    Behaviour,
    Request,
    RunningProxy,
    ScriptedUpstream,
    Visit,
    answer,
    answer_and_close,
    answer_early,
    both_loops,
    eventually,
    hang,
    one_route,
    request,
    reset,
    running,
)
from tests.support.ports import refusing_port
from tests.support.records import last_logged, outcomes

BUFFER = 1000
ROUTE = f"buffer: {BUFFER}B\nretry: {{backoff: {{base: 1ms, max: 1ms}}}}"
WHOLE = 1_000_000


def whys(record: dict[str, list[dict[str, str]]]) -> list[str]:
    return [attempt["why"] for attempt in record["attempts"]]


def assert_identical(requests: list[Request], body: bytes, framing: str) -> None:
    """All of them carried *body*, and none can be told from another."""
    assert all(seen.complete for seen in requests)
    assert {seen.framing for seen in requests} == {framing}
    assert {sha256(seen.body).digest() for seen in requests} == {sha256(body).digest()}
    assert len({seen.raw_head for seen in requests}) == 1


# Sent again from the first byte to the last.


@both_loops
@pytest.mark.parametrize("framed", [by_length, by_chunks])
@pytest.mark.parametrize(
    ("size", "piece"),
    [
        pytest.param(0, WHOLE, id="empty"),
        pytest.param(1, WHOLE, id="one byte"),
        pytest.param(700, 1, id="byte by byte"),
        pytest.param(700, 7, id="in small pieces"),
        pytest.param(700, 300, id="in large pieces"),
        pytest.param(BUFFER, WHOLE, id="exactly at the limit"),
        pytest.param(BUFFER, 333, id="exactly at the limit, in pieces"),
    ],
)
@pytest.mark.parametrize("together", [True, False], ids=["with the head", "after the head"])
async def test_every_attempt_carries_the_same_body(
    framed: Framed,
    size: int,
    piece: int,
    together: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    body = body_of(size)
    head, pieces = framed(body, piece)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer(UNAVAILABLE), reset)
        if together:
            await client.send(b"".join((head, *pieces)))
        else:
            await client.send(head)
            if size:
                await eventually(lambda: upstream.requests)
            await client.send(*pieces)
        seen = await client.response("PUT")
        assert (seen.status, seen.get("Holdfast-Attempts")) == (200, "3")
        assert whys(await last_logged(proxy)) == ["retried", "retried", "recovered"]
        # What was here when it was first sent needs no chunks any more.
        chunked = framed is by_chunks and not together and size
        assert_identical(upstream.requests, body, "chunked" if chunked else "length")
        assert kept_by(proxy) == 0


@pytest.mark.parametrize("piece", [1000, 16_384, 65_536, 300_000])
async def test_a_body_as_large_as_the_usual_limit_is_kept(piece: int) -> None:
    body = body_of(1024 * 1024)
    head, pieces = by_chunks(body, piece)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, "retry: {backoff: {base: 1ms}}")) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_and_close(UNAVAILABLE), hang_up_late)
        await client.send(head, *pieces)
        assert (await client.response("PUT")).status == 200
        assert_identical(upstream.requests, body, "chunked")


async def hang_up_late(visit: Visit) -> None:
    """Read everything, and the end of the response's head never comes."""
    await answer_and_close(b"HTTP/1.1 200 OK\r\nContent-Le")(visit)


# Answered while it is still on its way.


def early(status_line: bytes, after: int) -> Behaviour:
    """Answer when *after* bytes of the body have come, and read no more of it."""

    async def behave(visit: Visit) -> None:
        await visit.wire.read_exactly(after)
        await answer_early(status_line)(visit)

    return behave


@both_loops
@pytest.mark.parametrize("framed", [by_length, by_chunks])
@pytest.mark.parametrize(
    "taken", [0, 1, 50, 100, 200], ids=lambda taken: f"after {taken} of 900 bytes"
)
async def test_an_early_answer_the_next_attempt_replays_and_goes_on(
    framed: Framed, taken: int
) -> None:
    body = body_of(900)
    head, pieces = framed(body, 100)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(early(UNAVAILABLE, taken), early(UNAVAILABLE, 400))
        await client.send(head, *pieces[:3])
        await eventually(lambda: len(upstream.requests) == 2)
        # The second attempt has been given what was kept, and waits for the rest.
        await client.send(*pieces[3:6])
        await eventually(lambda: len(upstream.requests) == 3)
        assert not upstream.requests[2].complete
        await client.send(*pieces[6:])
        assert (await client.response("PUT")).status == 200
        assert whys(await last_logged(proxy)) == ["retried", "retried", "recovered"]
        framing = "length" if framed is by_length else "chunked"
        assert {seen.framing for seen in upstream.requests} == {framing}
        assert len({seen.raw_head for seen in upstream.requests}) == 1
        assert_identical(upstream.requests[-1:], body, framing)


@both_loops
async def test_an_early_answer_to_a_client_that_waits_for_our_word() -> None:
    body = body_of(900)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_early(UNAVAILABLE))
        await client.send(request("PUT", "/", "Expect: 100-continue", "Content-Length: 900"))
        assert (await client.interim()).status == 100
        await eventually(lambda: len(upstream.requests) == 2)
        await client.send(body)
        seen = await client.response("PUT")
        assert (seen.status, seen.interim) == (200, [])  # told once, and not at every attempt
        assert_identical(upstream.requests[-1:], body, "length")
        assert (await client.get()).status == 200


async def test_a_client_that_waits_for_our_word_gets_none_before_there_is_a_connection() -> None:
    with refusing_port() as port:
        async with running(one_route(f"http://127.0.0.1:{port}", ROUTE)) as proxy:
            async with proxy.client() as client:
                await client.send(request("PUT", "/", "Expect: 100-continue", "Content-Length: 9"))
                seen = await client.response("PUT")
            assert (seen.status, seen.interim) == (502, [])
            assert outcomes(await last_logged(proxy)) == ["connect"] * 3


async def test_another_upstream_that_stands_in_gets_the_whole_body() -> None:
    body = body_of(900)
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as other:
        route = f"buffer: {BUFFER}B\nretry: 1\nfallback: {{upstream: other}}"
        config = one_route(upstream, route).replace(
            "upstreams:", f"upstreams:\n  other: {other.url}"
        )
        async with running(config) as proxy, proxy.client() as client:
            upstream.script(early(UNAVAILABLE, 300))
            await client.send(request("PUT", "/", "Content-Length: 900") + body[:300])
            await eventually(lambda: other.requests)
            await client.send(body[300:])
            assert (await client.response("PUT")).status == 200
            assert_identical(other.requests, body, "length")
            assert kept_by(proxy) == 0


async def test_a_reload_in_the_middle_changes_nothing_for_the_body() -> None:
    body = body_of(900)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(early(UNAVAILABLE, 300))
        await client.send(request("PUT", "/", "Content-Length: 900") + body[:300])
        await eventually(lambda: len(upstream.requests) == 2)
        await reload(proxy, one_route(upstream, "buffer: 10B", top="limits: {replay_memory: 1B}"))
        await client.send(body[300:])
        assert (await client.response("PUT")).status == 200
        assert_identical(upstream.requests[-1:], body, "length")
        assert (await client.request("PUT", "/", body=body)).status == 200
        assert kept_by(proxy) == 0


async def reload(proxy: RunningProxy, config: str) -> None:
    kept = [line for line in proxy.config.read_text().splitlines() if "127.0.0.1:0" in line]
    proxy.config.write_text("\n".join((*kept, "access_log: all", config)))
    assert (await proxy.admin("POST", "/-/reload")).status == 200


# Beyond the limits: streamed once.


@both_loops
@pytest.mark.parametrize("framed", [by_length, by_chunks])
@pytest.mark.parametrize(
    ("size", "piece"),
    [
        pytest.param(BUFFER + 1, WHOLE, id="one over"),
        pytest.param(BUFFER + 1, 100, id="one over, in pieces"),
        pytest.param(500_000, WHOLE, id="far over"),
    ],
)
@pytest.mark.parametrize("fault", [answer(UNAVAILABLE), reset], ids=["answered", "reset"])
async def test_a_body_beyond_the_limit_is_sent_once_and_whole(
    framed: Framed,
    size: int,
    piece: int,
    fault: Behaviour,
) -> None:
    body = body_of(size)
    head, pieces = framed(body, piece)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(fault)
        await client.send(head, *pieces)
        seen = await client.response("PUT")
        assert (seen.status, seen.get("Holdfast-Attempts")) == (
            503 if fault is not reset else 502,
            None,
        )
        if fault is not reset:
            assert seen.body == b"not now"
        assert whys(await last_logged(proxy)) == ["body_too_large"]
        assert [sha256(r.body).digest() for r in upstream.requests] == [sha256(body).digest()]
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_verdicts_total", reason="body_too_large") == 1
        assert (await client.get()).status == 200


async def test_a_body_that_outgrows_the_limit_while_it_streams_was_sent_once() -> None:
    body = body_of(3 * BUFFER)
    head, pieces = by_chunks(body, 600)
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(early(UNAVAILABLE, 100), answer(UNAVAILABLE))
        await client.send(head, pieces[0])
        await eventually(lambda: len(upstream.requests) == 2)
        await client.send(*pieces[1:])
        assert (await client.response("PUT")).status == 503
        assert whys(await last_logged(proxy)) == ["retried", "body_too_large"]
        assert_identical(upstream.requests[1:], body, "chunked")


@pytest.mark.parametrize("size", [BUFFER + 1, 500_000])
async def test_a_large_body_of_which_nothing_was_sent_is_still_retried(size: int) -> None:
    body = body_of(size)
    with refusing_port() as dead:
        async with ScriptedUpstream() as upstream:
            urls = f"http://127.0.0.1:{dead}, {upstream.url}"
            async with running(one_route(urls, ROUTE, options="balance: first")) as proxy:
                async with proxy.client() as client:
                    seen = await client.request("POST", "/", body=body)
                assert (seen.status, seen.get("Holdfast-Attempts")) == (200, "2")
                assert outcomes(await last_logged(proxy)) == ["connect", "2xx"]
                assert_identical(upstream.requests, body, "length")


async def test_no_memory_left_to_keep_it_in() -> None:
    body = body_of(900)
    async with (
        ScriptedUpstream(answer(UNAVAILABLE)) as upstream,
        running(one_route(upstream, ROUTE, top="limits: {replay_memory: 899B}")) as proxy,
        proxy.client() as client,
    ):
        assert (await client.request("PUT", "/whole", body=body)).status == 503
        assert whys(await last_logged(proxy)) == ["buffer_full"]
        head, pieces = by_chunks(body, 100)
        await client.send(head, *pieces)
        assert (await client.response("PUT")).status == 503
        assert whys(await last_logged(proxy, 2)) == ["buffer_full"]
        assert [sha256(r.body).digest() for r in upstream.requests] == [sha256(body).digest()] * 2
        metrics = await proxy.metrics()
        assert metrics.total("holdfast_retry_verdicts_total", reason="buffer_full") == 2
        # One byte less fits.
        assert (await client.request("PUT", "/", body=body[1:])).status == 503
        assert whys(await last_logged(proxy, 3)) == ["retried", "retried", "attempts_exhausted"]


async def test_no_memory_left_but_nothing_was_sent() -> None:
    body = body_of(900)
    with refusing_port() as dead:
        async with ScriptedUpstream() as upstream:
            config = one_route(
                f"http://127.0.0.1:{dead}, {upstream.url}",
                ROUTE,
                options="balance: first",
                top="limits: {replay_memory: 0B}",
            )
            async with running(config) as proxy, proxy.client() as client:
                assert (await client.request("PUT", "/", body=body)).status == 200
                assert whys(await last_logged(proxy)) == ["retried", "recovered"]
                assert_identical(upstream.requests, body, "length")


# A body that never becomes whole is never sent a second time.


@both_loops
@pytest.mark.parametrize(
    ("fields", "sent", "status"),
    [
        pytest.param("Content-Length: 900", b"x" * 300, 408, id="stops sending"),
        pytest.param(
            "Transfer-Encoding: chunked", b"5\r\nabcde\r\n", 408, id="stops inside chunks"
        ),
        pytest.param("Transfer-Encoding: chunked", b"5\r\nabcde\r\nzz\r\n", 400, id="malformed"),
        pytest.param(
            "Transfer-Encoding: chunked",
            b"1f4\r\n" + b"x" * 500 + b"\r\n5\r\nabc",
            413,
            id="too large",
        ),
    ],
)
async def test_a_bad_body_is_not_retried(fields: str, sent: bytes, status: int) -> None:
    route = f"{ROUTE}\nidle_timeout: 100ms\nmax_body: 502B"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        head = request("PUT", "/", fields.replace("900", "400"))
        await client.send(head)
        await eventually(lambda: upstream.requests)
        await client.send(sent)
        assert (await client.response("PUT")).status == status
        assert outcomes(await last_logged(proxy)) == ["cancelled"]
        assert len(upstream.requests) == 1
        assert not upstream.requests[0].complete
        assert kept_by(proxy) == 0


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"", 408, id="stops sending"),
        pytest.param(b"zz\r\n", 400, id="malformed"),
        pytest.param(b"1f4\r\n" + b"x" * 500 + b"\r\n", 413, id="too large"),
    ],
)
async def test_a_body_that_turns_bad_in_the_second_attempt_gets_no_third(
    sent: bytes, status: int
) -> None:
    route = f"{ROUTE}\nidle_timeout: 100ms\nmax_body: 502B"
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream, route)) as proxy,
        proxy.client() as client,
    ):
        upstream.script(answer_early(UNAVAILABLE))
        await client.send(request("PUT", "/", "Transfer-Encoding: chunked") + b"5\r\nabcde\r\n")
        await eventually(lambda: len(upstream.requests) == 2)
        await client.send(sent)
        assert (await client.response("PUT")).status == status
        assert outcomes(await last_logged(proxy)) == ["5xx", "cancelled"]
        assert len(upstream.requests) == 2


async def test_a_client_that_leaves_mid_body_is_not_retried() -> None:
    async with (
        ScriptedUpstream(hang) as upstream,
        running(one_route(upstream, ROUTE)) as proxy,
    ):
        async with proxy.client() as client:
            await client.send(request("PUT", "/", "Content-Length: 900") + b"x" * 300)
            await eventually(lambda: upstream.received > 300)
        record = await last_logged(proxy)
        assert (record["code"], whys(record)) == (499, ["client_gone"])
        assert len(upstream.requests) == 1
