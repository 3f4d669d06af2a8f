"""What a listening socket is called, and why one cannot be had.

The files of unix ones are tested with the listeners.
"""

import errno
import socket
from pathlib import Path

import pytest

from proxy.net.listen_socket import CannotListen, SocketName, address_of, bind, explained
from proxy.policy.settings import Listen


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


@pytest.mark.parametrize(
    ("address", "number", "reason"),
    [
        (
            Listen("127.0.0.1", 8080),
            errno.EADDRINUSE,
            "127.0.0.1:8080: another process listens there, stop it or write another port",
        ),
        (
            Listen("0.0.0.0", 80),  # noqa: S104 - not listened on
            errno.EACCES,
            (
                "0.0.0.0:80: ports below 1024 need a privilege, write another port or grant "
                "CAP_NET_BIND_SERVICE"
            ),
        ),
        (
            Listen("127.0.0.1", 8080),
            errno.EACCES,
            "127.0.0.1:8080: this process may not listen there, write another port",
        ),
        (
            Listen("10.9.9.9", 8080),
            errno.EADDRNOTAVAIL,
            "10.9.9.9:8080: this machine has no such address, write one of its own, or 0.0.0.0",
        ),
        (
            Listen(path="/run/a.sock"),
            errno.EACCES,
            (
                "unix:/run/a.sock: this process may not write to that folder, allow it or write "
                "another path"
            ),
        ),
        (Listen("::1", 8080), errno.EMFILE, "[::1]:8080: too many open files"),
    ],
)
def test_what_prevents_listening_is_said_in_plain_words(
    address: Listen, number: int, reason: str
) -> None:
    with pytest.raises(CannotListen) as failure, explained(address):
        raise OSError(number, "error while attempting to bind")
    assert str(failure.value) == f"cannot listen on {reason}"


async def test_a_unix_socket_that_cannot_be_had(tmp_path: Path) -> None:
    file, used = tmp_path / "file", tmp_path / "used"
    file.write_text("")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(used))
        listening.listen()
        for path, reason in (
            (file, "the file there is no socket and is not replaced, write another path"),
            (used, "another process listens there, stop it or write another path"),
            (file / "below", "a part of the path is no folder, correct it"),
            (tmp_path / "no" / "a", "there is no such folder, create it or write another path"),
        ):
            with pytest.raises(CannotListen) as failure:
                await bind(Listen(path=str(path)))
            assert str(failure.value) == f"cannot listen on unix:{path}: {reason}"


async def test_a_name_without_an_address() -> None:
    with pytest.raises(CannotListen) as failure:
        await bind(Listen("no-such-name.invalid", 8080))
    assert str(failure.value) == (
        "cannot listen on no-such-name.invalid:8080: the name has no address, write "
        "127.0.0.1:8080 (say)"
    )
