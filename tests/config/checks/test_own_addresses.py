"""An upstream at an address that we listen on: certain ones are faults. » marks the position."""

from collections.abc import Callable

import pytest

REST = "upstreams: {{app: »'{}'}}\nroutes: [{{match: /**, upstream: app}}]\n"
LOOP = "so each request would come back to us, write the address of the service, or another listen"


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("127.0.0.1:8080", "http://LOCALHOST.:8080"),
        ("127.0.0.1:8080", "http://0.0.0.0:8080"),
        ("127.0.0.1:8080", "http://[::ffff:127.0.0.1]:8080"),
        ("127.0.0.1:80", "http://127.0.0.1"),
        ("127.0.0.1:443", "https://127.0.0.1/base"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0:8080", "http://127.0.0.2:8080"),
        ("0.0.0.0:8080", "http://localhost:8080"),
        ("0.0.0.0:8080", "http://0.0.0.0:8080"),
        ("localhost:8080", "http://127.0.0.1:8080"),
        ("localhost:8080", "http://localhost:8080"),
        ("'[::1]:8080'", "http://[::1]:8080"),
        ("'[::]:8080'", "http://[::1]:8080"),
        ("'[::1]:8080'", "http://[::]:8080"),
        ("10.1.2.3:8080", "http://10.1.2.3:8080"),
        ("sidecar.example:8080", "http://Sidecar.example.:8080"),
    ],
)
def test_a_certain_loop_is_a_fault(only_line: Callable[..., None], listen: str, url: str) -> None:
    shown = listen.strip("'")
    only_line(
        f"listen: {listen}\n{REST.format(url)}",
        f"upstreams.app: {url} is our own listener (listen: {shown}), {LOOP}",
    )


def test_the_listener_that_is_built_in_counts(only_line: Callable[..., None]) -> None:
    url = "http://localhost:8080"
    only_line(
        REST.format(url),
        f"upstreams.app: {url} is our own listener (listen: 127.0.0.1:8080), {LOOP}",
    )


@pytest.mark.parametrize(
    ("top", "url"),
    [("", "http://127.0.0.1:9901"), ("admin: localhost:7000\n", "http://127.0.0.1:7000")],
)
def test_the_admin_listener(only_line: Callable[..., None], top: str, url: str) -> None:
    address = "localhost:7000" if top else "127.0.0.1:9901"
    only_line(
        top + REST.format(url),
        f"upstreams.app: {url} is our own admin listener (admin: {address}), which sends "
        "nothing on, write the address of the service, or another admin",
    )


def test_a_name_that_may_be_another_address_is_a_warning(only_line: Callable[..., None]) -> None:
    only_line(
        "listen: '[::1]:8080'\n" + REST.format("http://localhost:8080"),
        "upstreams.app: warning: http://localhost:8080 may be our own listener (listen: "
        "[::1]:8080), so each request would come back to us, write 127.0.0.1 for localhost if the "
        "service listens there, or another listen",
    )


def test_each_url_of_a_list_and_each_listener_counts(lines: Callable[..., list[str]]) -> None:
    found = lines(
        "listen: [127.0.0.1:8081, {address: '127.0.0.1:8082'}]\n"
        "upstreams:\n  app: {urls: ['http://10.0.0.1:1', 'http://127.0.0.1:8082']}\n"
        "routes: [{match: /**, upstream: app}]\n"
    )
    assert len(found) == 1
    assert found[0] == (
        "holdfast.yaml:3:37: upstreams.app.urls[1]: http://127.0.0.1:8082 is our own "
        f"listener (listen: 127.0.0.1:8082), {LOOP}"
    )


def test_an_address_from_outside_is_not_shown(only_line: Callable[..., None]) -> None:
    only_line(
        "listen: ${WHERE}\n" + REST.format("http://${WHERE}"),
        "upstreams.app: the value of ${WHERE} is our own listener (listen: the value of "
        f"${{WHERE}}), {LOOP}",
        {"WHERE": "127.0.0.1:7777"},
    )


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:9000"),
        ("127.0.0.1:8080", "http://127.0.0.2:8080"),
        ("127.0.0.1:8080", "http://[::1]:8080"),
        ("127.0.0.1:8080", "http://app.example:8080"),
        ("0.0.0.0:8080", "http://10.1.2.3:8080"),
        ("0.0.0.0:8080", "http://[::1]:8080"),
        ("127.0.0.1:0", "http://127.0.0.1:8080"),
        ("unix:/run/holdfast.sock", "http://127.0.0.1:8080"),
        ("10.1.2.3:8080", "http://localhost:8080"),
    ],
)
def test_what_may_be_another_service(
    lines: Callable[..., list[str]], listen: str, url: str
) -> None:
    assert lines(f"listen: {listen}\n{REST.format(url)}".replace("»", "")) == []
