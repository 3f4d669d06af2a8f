"""``--watch``: one reload for each change of content, and none for anything else."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.config import ConfigError, Loaded, load
from proxy.runtime.config_watch import OnRead, WatchedLoad, reload_when_outdated
from tests.support import Certificates, eventually

INTERVAL = 0.002
ROUTE = "upstreams: {a: 'http://127.0.0.1:1'}\nroutes: [{match: /, upstream: a}]\n"


class Watcher:
    """Stands for the application: loads when told to, and keeps what came of it."""

    def __init__(self, path: Path) -> None:
        self.load = WatchedLoad(lambda on_read: load([path], {}, on_read=on_read))
        self.results: list[Loaded | ConfigError] = []

    async def reload(self) -> None:
        try:
            self.results.append(await asyncio.to_thread(self.load))
        except ConfigError as error:
            self.results.append(error)

    @property
    def token(self) -> str | None:
        """The admin token of the latest load; a failure if that was refused."""
        latest = self.results[-1]
        assert isinstance(latest, Loaded)
        return latest.settings.admin_token

    @property
    def is_refused(self) -> bool:
        """Whether the latest load failed."""
        return isinstance(self.results[-1], ConfigError)

    async def reloaded(self, times: int) -> None:
        """Once it was loaded *times* times; and no more, however often one looks."""
        await eventually(lambda: len(self.results) >= times, what=f"load {times}")
        assert not self.load.is_outdated()
        assert len(self.results) == times


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[Watcher]:
    """A watcher that has loaded *path* once."""
    watcher = Watcher(path)
    await watcher.reload()
    task = asyncio.create_task(reload_when_outdated(watcher.load, watcher.reload, INTERVAL))
    try:
        yield watcher
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait((task,))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.yaml"
    path.write_text(f"admin_token: one\n{ROUTE}")
    return path


def replace(path: Path, text: str) -> None:
    """Give *path* another content at once, so that nobody reads it half written."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def rename(path: Path, name: str) -> Path:
    return path.rename(path.with_name(name))


async def test_the_file_itself(config: Path) -> None:
    async with watching(config) as watcher:
        await watcher.reloaded(1)
        replace(config, f"admin_token: two\n{ROUTE}")
        await watcher.reloaded(2)
        assert watcher.token == "two"


async def test_a_file_that_is_written_again_as_it_was_is_no_change(config: Path) -> None:
    async with watching(config) as watcher:
        replace(config, f"admin_token: one\n{ROUTE}")
        await watcher.reloaded(1)


async def test_a_file_named_in_a_value(config: Path) -> None:
    secret = config.with_name("secret")
    secret.write_text("one")
    replace(config, f"admin_token: ${{file:secret}}\n{ROUTE}")
    async with watching(config) as watcher:
        assert watcher.token == "one"
        replace(secret, "two")
        await watcher.reloaded(2)
        assert watcher.token == "two"


async def test_a_certificate(config: Path, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue()
    listen = f"{{address: 127.0.0.1:2, tls: {{cert: {cert}, key: {key}}}}}"
    replace(config, f"listen: {listen}\n{ROUTE}")
    async with watching(config) as watcher:
        # Of the same key, so that it is good at any moment.
        replace(cert, cert.read_text() + certificates.ca.read_text())
        await watcher.reloaded(2)
        assert not watcher.is_refused


async def test_a_swapped_link_as_a_mounted_config_map_has_it(tmp_path: Path) -> None:
    for version in ("one", "two"):
        (tmp_path / f"..{version}").mkdir()
        text = f"admin_token: ${{file:secret}}\ndrain_delay: 1s # {version}\n{ROUTE}"
        (tmp_path / f"..{version}" / "holdfast.yaml").write_text(text)
        (tmp_path / f"..{version}" / "secret").write_text(version)
    (tmp_path / "..data").symlink_to("..one")
    for name in ("holdfast.yaml", "secret"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    async with watching(tmp_path / "holdfast.yaml") as watcher:
        assert watcher.token == "one"
        (tmp_path / "..new").symlink_to("..two")
        (tmp_path / "..new").replace(tmp_path / "..data")
        await watcher.reloaded(2)
        assert watcher.token == "two"


async def test_a_file_that_is_missing_is_waited_for(config: Path) -> None:
    async with watching(config) as watcher:
        replace(config, f"admin_token: ${{file:late}}\n{ROUTE}")
        await watcher.reloaded(2)
        assert watcher.is_refused
        replace(config.with_name("late"), "here-at-last")
        await watcher.reloaded(3)
        assert watcher.token == "here-at-last"


async def test_a_certificate_that_is_missing_is_waited_for(config: Path, tmp_path: Path) -> None:
    ca = Certificates(tmp_path).ca
    late = tmp_path / "late.pem"
    upstream = f"{{urls: ['https://127.0.0.1:1'], tls: {{ca: {late}}}}}"
    async with watching(config) as watcher:
        replace(config, ROUTE.replace("'http://127.0.0.1:1'", upstream))
        await watcher.reloaded(2)
        assert watcher.is_refused
        replace(late, ca.read_text())
        await watcher.reloaded(3)
        assert not watcher.is_refused


async def test_the_file_itself_gone_and_back_again(config: Path) -> None:
    async with watching(config) as watcher:
        away = rename(config, "away")
        await watcher.reloaded(2)
        assert watcher.is_refused
        rename(away, config.name)
        await watcher.reloaded(3)
        assert watcher.token == "one"


async def test_naming_another_file_is_one_change(config: Path) -> None:
    config.with_name("secret").write_text("two")
    async with watching(config) as watcher:
        replace(config, f"admin_token: ${{file:secret}}\n{ROUTE}")
        await watcher.reloaded(2)
        assert watcher.token == "two"


async def test_a_file_that_is_no_longer_named_is_no_longer_watched(config: Path) -> None:
    secret = config.with_name("secret")
    secret.write_text("one")
    replace(config, f"admin_token: ${{file:secret}}\n{ROUTE}")
    async with watching(config) as watcher:
        replace(config, f"admin_token: two\n{ROUTE}")
        await watcher.reloaded(2)
        replace(secret, "nobody asks")
        await watcher.reloaded(2)


async def test_a_reload_that_somebody_else_asked_for_is_not_done_twice(config: Path) -> None:
    watcher = Watcher(config)
    await watcher.reload()
    replace(config, f"admin_token: two\n{ROUTE}")
    assert watcher.load.is_outdated()
    await watcher.reload()
    assert not watcher.load.is_outdated()


async def test_a_change_during_a_load_is_seen_by_the_next_look(config: Path) -> None:
    def load_and_change(on_read: OnRead) -> Loaded:
        found = load([config], {}, on_read=on_read)
        replace(config, f"admin_token: two\n{ROUTE}")
        return found

    watched = WatchedLoad(load_and_change)
    assert watched().settings.admin_token == "one"
    assert watched.is_outdated()


async def test_what_cannot_be_read_twice_is_not_read_to_look(config: Path) -> None:
    pipe = config.with_name("pipe")
    os.mkfifo(pipe)
    replace(config, f"admin_token: ${{file:pipe}}\n{ROUTE}")
    async with watching(config) as watcher:
        assert watcher.is_refused
        await watcher.reloaded(1)
