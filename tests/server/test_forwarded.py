"""Who has asked: what the upstream is told, and whose bucket a request is counted in.

The vectors of ``forwarded`` say what the upstream is told.

Once as they stand, for foreign addresses; once over real sockets, where the peer is
this machine, over IPv4, IPv6 or a unix socket, and trusted or not.
"""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from proxy.http.forwarded import ForwardedFields, client_address, identity_lines
from tests.support import RawClient, ScriptedUpstream, one_route, running
from tests.vectors.load import cases


def claims(received: dict[str, str]) -> ForwardedFields:
    def values(name: str) -> tuple[bytes, ...]:
        return (received[name].encode(),) if name in received else ()

    return ForwardedFields(
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


OURS = (ip_network("10.0.0.0/8"), ip_network("2001:db8:aaaa::/48"))


@pytest.mark.parametrize(
    ("peer", "claimed", "client"),
    [
        pytest.param("192.0.2.1", [], "192.0.2.1", id="the peer itself"),
        pytest.param("192.0.2.1", ["198.51.100.7"], "192.0.2.1", id="a stranger is not believed"),
        pytest.param("10.0.0.1", [], "10.0.0.1", id="a proxy that says nothing"),
        pytest.param("10.0.0.1", ["198.51.100.7"], "198.51.100.7", id="a proxy is believed"),
        pytest.param(
            "10.0.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7", id="the last one it added"
        ),
        pytest.param(
            "10.0.0.1",
            ["203.0.113.9, 198.51.100.7, 10.9.9.9,10.8.8.8"],
            "198.51.100.7",
            id="before all proxies of ours",
        ),
        pytest.param(
            "10.0.0.1",
            ["203.0.113.9", "198.51.100.7", "10.9.9.9"],
            "198.51.100.7",
            id="line by line",
        ),
        pytest.param("10.0.0.1", ["10.9.9.9, 10.8.8.8"], "10.9.9.9", id="all of them are ours"),
        pytest.param(
            "10.0.0.1",
            ["198.51.100.7, unknown, 10.9.9.9"],
            "10.9.9.9",
            id="nobody knows who stands behind unknown",
        ),
        pytest.param("10.0.0.1", ["_hidden"], "10.0.0.1", id="a made-up name"),
        pytest.param("10.0.0.1", ["client.example"], "10.0.0.1", id="a host name"),
        pytest.param("10.0.0.1", ["198.51.100.300"], "10.0.0.1", id="no address at all"),
        pytest.param("10.0.0.1", ["198.51.100.7, []"], "10.0.0.1", id="nothing in brackets"),
        pytest.param("10.0.0.1", ["198.51.100.7, :80"], "10.0.0.1", id="only a port"),
        pytest.param("10.0.0.1", ["caf\u00e9"], "10.0.0.1", id="no ASCII"),
        pytest.param("10.0.0.1", ["\u0661.2.3.4"], "10.0.0.1", id="digits of another script"),
        pytest.param("10.0.0.1", ["x" * 60_000], "10.0.0.1", id="much of nothing"),
        pytest.param("10.0.0.1", [",, 198.51.100.7 ,\t,"], "198.51.100.7", id="empty elements"),
        pytest.param("10.0.0.1", [""], "10.0.0.1", id="only an empty one"),
        pytest.param("10.0.0.1", ["198.51.100.7:4711"], "198.51.100.7", id="with a port"),
        pytest.param("10.0.0.1", ["2001:DB8:0::1"], "2001:db8::1", id="an IPv6 address"),
        pytest.param("10.0.0.1", ["[2001:db8::1]"], "2001:db8::1", id="in brackets"),
        pytest.param("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1", id="with port"),
        pytest.param("10.0.0.1", ['"[2001:db8::1]:4711"'], "2001:db8::1", id="and in quotes"),
        pytest.param("10.0.0.1", ["fe80::1%eth0"], "fe80::1", id="without its zone"),
        pytest.param("10.0.0.1", ["::ffff:198.51.100.7"], "198.51.100.7", id="IPv4 as IPv6"),
        pytest.param("10.0.0.1", ["[::ffff:10.1.1.1]:80"], "10.1.1.1", id="one of ours as IPv6"),
        pytest.param("::ffff:10.0.0.1", ["198.51.100.7"], "198.51.100.7", id="a dual-stack socket"),
        pytest.param("::ffff:192.0.2.1", ["198.51.100.7"], "192.0.2.1", id="a stranger on one"),
        pytest.param("2001:db8:aaaa::1", ["2001:db8::7"], "2001:db8::7", id="a proxy over IPv6"),
        pytest.param("fe80::1%eth0", [], "fe80::1", id="a neighbour"),
        pytest.param("", ["198.51.100.7, 10.1.1.1"], "198.51.100.7", id="over a unix socket"),
        pytest.param("", [], "", id="over a unix socket, and nobody says"),
    ],
)
def test_the_address_of_the_client(peer: str, claimed: list[str], client: str) -> None:
    claims = ForwardedFields(forwarded_for=tuple(value.encode() for value in claimed))
    assert client_address(peer, claims, OURS, trust_unix=True) == client


@pytest.mark.parametrize("peer", ["", "10.0.0.1"])
def test_without_trust_claims_are_nothing(peer: str) -> None:
    claims = ForwardedFields(forwarded_for=(b"198.51.100.7",))
    assert client_address(peer, claims, (), trust_unix=False) == peer
