"""The admin listener's address: TCP of both families, and unix sockets."""

import socket
import stat
from pathlib import Path

import pytest

from tests.support import RawClient, both_loops, one_route, running
from tests.support.proxies import RunningProxy

NOWHERE = "http://127.0.0.1:9"


def config(admin: str) -> str:
    return one_route(NOWHERE, top=f"admin: '{admin}'")


async def ready(client: RawClient) -> bool:
    async with client:
        return (await client.get("/readyz", "Host: localhost")).status == 200


def tcp_client(proxy: RunningProxy, host: str) -> RawClient:
    return RawClient(proxy.admin_port, host=host)


@pytest.mark.parametrize(
    ("admin", "host", "shown"),
    [
        pytest.param("127.0.0.1:0", "127.0.0.1", "127.0.0.1:{}", id="IPv4"),
        pytest.param("[::1]:0", "::1", "[::1]:{}", id="IPv6 has brackets"),
    ],
)
async def test_the_address_is_shown_as_one_writes_it(admin: str, host: str, shown: str) -> None:
    async with running(config(admin)) as proxy:
        assert proxy.app.admin_bound == [shown.format(proxy.admin_port)]
        assert await ready(tcp_client(proxy, host))


@both_loops
async def test_a_unix_socket_serves_and_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with running(config(f"unix:{path}")) as proxy:
        assert proxy.app.admin_bound == [f"unix:{path}"]
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert await ready(RawClient(path=str(path)))
    assert not path.exists()


@both_loops
async def test_a_socket_that_an_earlier_process_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    async with running(config(f"unix:{path}")):
        assert await ready(RawClient(path=str(path)))


@both_loops
async def test_a_second_proxy_does_not_take_over_the_first_ones_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with running(config(f"unix:{path}")):
        with pytest.raises(OSError, match=r"admin\.sock: another process listens there"):
            async with running(config(f"unix:{path}")):
                pass
        assert await ready(RawClient(path=str(path))), "the first goes on"


@both_loops
async def test_a_file_that_is_no_socket_is_left_alone_and_named(tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("keep me")
    with pytest.raises(OSError, match=r"precious\.txt: the file there is no socket"):
        async with running(config(f"unix:{path}")):
            pass
    assert path.read_text() == "keep me"


async def test_a_start_that_fails_later_removes_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="another process listens there"):
            async with running(f"listen: {address}\n" + config(f"unix:{path}")):
                pass
    assert not path.exists()
