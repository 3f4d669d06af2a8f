"""From a configuration to an exit: what the process says if it cannot serve."""

from pathlib import Path

import pytest

from proxy.config import Loaded, load
from proxy.runtime.config_watch import OnRead, WatchedLoad
from proxy.runtime.main import CannotServe, run_until_signal
from tests.support import Certificates


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.yaml"
    ca = Certificates(tmp_path).ca
    path.write_text(
        "listen: 127.0.0.1:0\nadmin: false\n"
        f"upstreams: {{a: {{urls: ['https://127.0.0.1:1'], tls: {{ca: {ca}}}}}}}\n"
        "routes: [{match: /, upstream: a}]\n"
    )
    return path


async def test_a_certificate_that_goes_away_after_the_check_prevents_the_start(
    config: Path,
) -> None:
    def read(on_read: OnRead) -> Loaded:
        loaded = load([config], {}, on_read=on_read)
        (config.parent / "ca.pem").unlink()
        return loaded

    with pytest.raises(CannotServe) as failure:
        await run_until_signal(WatchedLoad(read), watch=False)
    ca = config.parent / "ca.pem"
    assert str(failure.value) == f"cannot start: cannot read {ca} (no such file or directory)"


async def test_an_address_that_cannot_be_had_prevents_listening(config: Path) -> None:
    def read(on_read: OnRead) -> Loaded:
        nowhere = f"unix:{config.parent / 'no-such-folder' / 'socket'}"
        return load([config], {}, listen=[nowhere], on_read=on_read)

    with pytest.raises(CannotServe) as failure:
        await run_until_signal(WatchedLoad(read), watch=False)
    assert str(failure.value) == (
        f"cannot listen on unix:{config.parent}/no-such-folder/socket: there is no such folder, "
        "create it or write another path"
    )


async def test_a_certificate_that_changes_after_the_check_prevents_the_start(config: Path) -> None:
    def read(on_read: OnRead) -> Loaded:
        loaded = load([config], {}, on_read=on_read)
        (config.parent / "ca.pem").write_text("hello")
        return loaded

    with pytest.raises(CannotServe) as failure:
        await run_until_signal(WatchedLoad(read), watch=False)
    assert str(failure.value) == (
        "cannot start: a certificate or key has changed and cannot be used, holdfast check says "
        "which"
    )
