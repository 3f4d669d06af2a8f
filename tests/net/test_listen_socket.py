"""What a listening socket is called. The files of unix ones are tested with the listeners."""

import pytest

from proxy.net.listen_socket import SocketName, address_of


@pytest.mark.parametrize(
    ("name", "address"),
    [
        pytest.param("/run/a.sock", "unix:/run/a.sock", id="a unix socket is its path"),
        pytest.param(("127.0.0.1", 80), "127.0.0.1:80", id="IPv4"),
        pytest.param(("::1", 80, 0, 0), "[::1]:80", id="IPv6 gets brackets"),
    ],
)
def test_an_address_is_written_as_in_the_file(name: SocketName, address: str) -> None:
    assert address_of(name) == address
