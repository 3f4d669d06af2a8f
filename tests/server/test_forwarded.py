"""The vectors of ``forwarded``: who the upstream is told has asked.

Once as they stand, for foreign addresses; once over real sockets, where the peer is
this machine, over IPv4, IPv6 or a unix socket, and trusted or not.
"""

from pathlib import Path
from typing import Any

import pytest

from proxy.policy.forwarded import Claims, identity_lines
from tests.support import RawClient, ScriptedUpstream, one_route, running
from tests.vectors.load import cases


def claims(received: dict[str, str]) -> Claims:
    def values(name: str) -> tuple[bytes, ...]:
        return (received[name].encode(),) if name in received else ()

    return Claims(
        forwarded_for=values("X-Forwarded-For"),
        proto=values("X-Forwarded-Proto"),
        host=values("X-Forwarded-Host"),
        forwarded=values("Forwarded"),
    )


@pytest.mark.parametrize("case", cases("forwarded"))
def test_lines(case: dict[str, Any]) -> None:
    lines = identity_lines(
        "" if case["peer"] == "unix" else case["peer"],
        "http",
        case.get("host", "").encode(),
        claims(case["received"]),
        trusted=case["trusted"],
    )
    found = dict(line.split(": ", 1) for line in lines.decode().split("\r\n") if line)
    assert {name: found[name] for name in case["expect"]} == case["expect"]


def here(peer: str) -> tuple[str, str]:
    """Where to listen, and as whom we are seen there, in place of *peer*."""
    if peer == "unix":
        return "unix:{folder}/socket", ""
    return ("[::1]:0", "::1") if ":" in peer else ("127.0.0.1:0", "127.0.0.1")


@pytest.mark.parametrize("case", cases("forwarded"))
async def test_on_the_wire(case: dict[str, Any], tmp_path: Path) -> None:
    peer = case["peer"]
    listen, seen_as = here(peer)
    listen = listen.format(folder=tmp_path)
    top = f'listen: "{listen}"'
    if case["trusted"]:
        top += f'\ntrusted_proxies: ["{seen_as or "unix"}"]'
    fields = "".join(f"{name}: {value}\r\n" for name, value in case["received"].items())
    # Without a host the request must be of a time when there was none.
    version = "HTTP/1.1" if "host" in case else "HTTP/1.0"
    host = f"Host: {case['host']}\r\n" if "host" in case else ""
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=top)) as proxy:
        path = str(tmp_path / "socket") if peer == "unix" else ""
        async with RawClient(proxy.port, host=seen_as, path=path) as client:
            await client.send(f"GET / {version}\r\n{host}{fields}\r\n".encode())
            assert (await client.response()).status == 200
        (request,) = upstream.requests
        expected = {
            name: value if peer == "unix" else value.replace(peer, seen_as)
            for name, value in case["expect"].items()
        }
        assert {name: request.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    "field",
    [
        "X-Real-Ip: 1.2.3.4",
        "X-Forwarded-Port: 1",
        "X-Forwarded-Prefix: /a",
        "X-Forwarded-Server: a",
        "X-Forwarded-Ssl: on",
        "X-Forwarded-Scheme: https",
    ],
)
@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "untrusted"])
async def test_other_claims_pass_only_from_a_trusted_peer(field: str, *, trusted: bool) -> None:
    top = "trusted_proxies: [127.0.0.0/8]" if trusted else ""
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=top)) as proxy:
        await proxy.get("/", field)
        assert (field.partition(":")[0].lower() in upstream.requests[0].names) == trusted


@pytest.mark.parametrize(
    "field", ["X_Forwarded_For: 1.2.3.4", "Content_Length: 3", "Transfer_Encoding: chunked"]
)
async def test_look_alikes_with_underscores_never_pass(field: str) -> None:
    top = "trusted_proxies: [127.0.0.1]"
    async with ScriptedUpstream() as upstream, running(one_route(upstream, top=top)) as proxy:
        await proxy.get("/", field)
        assert field.partition(":")[0].lower() not in upstream.requests[0].names


async def test_a_second_request_of_another_host_is_not_told_with_the_first_ones_name() -> None:
    async with (
        ScriptedUpstream() as upstream,
        running(one_route(upstream)) as proxy,
        proxy.client() as client,
    ):
        for host in ("a.example", "b.example", "a.example"):
            await client.get("/", f"Host: {host}")
        assert [r.get("X-Forwarded-Host") for r in upstream.requests] == [
            "a.example",
            "b.example",
            "a.example",
        ]
