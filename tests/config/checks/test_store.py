"""The store: what comes of what is written, and what is said to mistakes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.config import Loaded, load
from proxy.policy.settings import MemorySettings, StoreSettings, UpstreamTls
from proxy.policy.settings.store import RedisSettings, SqliteSettings
from tests.config.templates import TOP, in_file

Load = Callable[..., Loaded]

PASSWORD = "hunter2"
ENVIRON = {
    "PASSWORD": PASSWORD,
    "URL": f"redis://app:{PASSWORD}@redis:6380/2",
    "EMPTY": "",
    "ODD": "\udcff",
    "USER": "app",
}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", MemorySettings(), id="nobody said so: memory"),
        pytest.param("store: memory", MemorySettings(), id="memory"),
        pytest.param(
            "store: {url: memory, timeout: 1s}", MemorySettings(), id="memory, and keys for redis"
        ),
        pytest.param(
            "store: {url: memory, entries: 5, bytes: 1KiB}",
            MemorySettings(entries=5, bytes=1024),
            id="memory, and how much of it",
        ),
        pytest.param("store: redis://redis", RedisSettings("redis"), id="a host"),
        pytest.param("store: redis://redis/", RedisSettings("redis"), id="and a slash"),
        pytest.param(
            "store: REDIS://Redis.Example:6380/3",
            RedisSettings("redis.example", 6380, 3),
            id="port and database, in any letters",
        ),
        pytest.param("store: 'redis://[::1]:6380'", RedisSettings("::1", 6380), id="IPv6"),
        pytest.param(
            "store: redis://:${PASSWORD}@redis",
            RedisSettings("redis", password=PASSWORD),
            id="a password without a user",
        ),
        pytest.param("store: redis://:@redis", RedisSettings("redis"), id="an empty password"),
        pytest.param(
            "store: ${URL}",
            RedisSettings("redis", 6380, 2, "app", PASSWORD),
            id="all of it from outside",
        ),
        pytest.param(
            "store: redis://a%3Ab:${EMPTY}p%40%2F%23%25:%C3%A4@redis",
            RedisSettings("redis", username="a:b", password="p@/#%:ä"),
            id="escaped characters",
        ),
        pytest.param(
            "store: {url: redis://redis, username: app, password: '${PASSWORD}'}",
            RedisSettings("redis", username="app", password=PASSWORD),
            id="credentials as keys",
        ),
        pytest.param(
            "store: {url: redis://app@redis, password: '${PASSWORD}'}",
            RedisSettings("redis", username="app", password=PASSWORD),
            id="one in the URL, the other as a key",
        ),
        pytest.param(
            "store: {url: redis://redis, prefix: 'a:{b}', timeout: 1s}",
            RedisSettings("redis", prefix="a:{b}", timeout=1),
            id="every other key",
        ),
        pytest.param(
            "store: rediss://redis",
            RedisSettings("redis", tls=UpstreamTls()),
            id="TLS with the system's authorities",
        ),
        pytest.param(
            "store: {url: rediss://10.0.0.7, tls: {server_name: redis.example}}",
            RedisSettings("10.0.0.7", tls=UpstreamTls(server_name="redis.example")),
            id="TLS by another name",
        ),
    ],
)
def test_store(loaded: Load, written: str, expected: StoreSettings) -> None:
    found = loaded(TOP.format(written), ENVIRON)
    assert found.settings.store == expected
    assert found.warnings == ()


def test_certificates(loaded: Load, certificates: Path) -> None:
    found = loaded(
        TOP.format("store: {url: rediss://redis, tls: {ca: ca.pem, cert: one.pem, key: one.key}}")
    )
    assert found.settings.store == RedisSettings(
        "redis",
        tls=UpstreamTls(
            ca=str(certificates / "ca.pem"),
            cert=str(certificates / "one.pem"),
            key=str(certificates / "one.key"),
        ),
    )


def test_certificates_are_watched(folder: Path, certificates: Path) -> None:
    (folder / "holdfast.yaml").write_text(
        TOP.format("store: {url: rediss://redis, tls: {ca: ca.pem}}")
    )
    read: list[Path] = []
    load(["holdfast.yaml"], {}, on_read=read.append)
    assert certificates / "ca.pem" in read


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "40 a slash in the password",
            "store: »redis://:pa/ss@redis:6379",
            'store: the password in this URL has characters that must be escaped, write %2F for "/"'
            ', %40 for "@", %23 for "#"',
        ),
        in_file(
            "40 an @ in the password",
            "store: {url: »'redis://app:p@ss@redis'}",
            "store.url: the password in this URL has characters that must be escaped, write %2F "
            'for "/", %40 for "@", %23 for "#"',
        ),
        in_file(
            "40 the same, from outside, where nobody can escape it",
            "store: »redis://:${PASSWORD}/@redis",
            "store: the password in this URL has characters that must be escaped, write it as a "
            'key of its own: {url: redis://…, password: "${…}"}',
        ),
        in_file(
            "40 a % that escapes nothing",
            "store: »redis://:100%@redis",
            'store: a "%" in the password of this URL must be escaped, write %25 for "%"',
        ),
        in_file(
            "40 an escape that is no text",
            "store: »redis://:%ff@redis",
            "store: the password in this URL is not UTF-8 text, write it as a key of its own: "
            '{url: redis://…, password: "${…}"}',
        ),
        in_file(
            "40 bytes from outside that are no text",
            "store: »redis://:${ODD}@redis",
            "store: the password in this URL is not UTF-8 text, write it as a key of its own: "
            '{url: redis://…, password: "${…}"}',
        ),
        in_file(
            "such bytes as a key",
            "store: {url: redis://redis, password: »'${ODD}'}",
            "store.password: the password is not UTF-8 text, write another",
        ),
        in_file(
            "and as a user",
            "store: {url: redis://redis, username: »'${ODD}', password: '${PASSWORD}'}",
            "store.username: the value of ${ODD} is no name of a user, write holdfast (say)",
        ),
        in_file(
            "38 a password in the file, in the URL",
            "store: »redis://:hunter2@redis",
            "store: warning: a secret stands in the file, write ${REDIS_URL} or ${file:PATH}",
        ),
        in_file(
            "38 a password in the file, as a key",
            "store: {url: redis://redis, password: »hunter2}",
            "store.password: warning: a secret stands in the file, write ${REDIS_PASSWORD} or "
            "${file:PATH}",
        ),
        in_file(
            "nothing at all",
            "store:»",
            "store: url is missing, write url: redis://127.0.0.1:6379 (say)",
        ),
        in_file(
            "its name alone",
            "store: »redis",
            'store: "redis" is no store, write memory, sqlite:PATH or redis://127.0.0.1:6379 (say)',
        ),
        in_file(
            "no scheme",
            "store: »redis:6379/1",
            'store: "redis:6379/1" has no scheme, write redis://redis:6379/1',
        ),
        in_file(
            "no scheme, but a password",
            "store: »app:hunter2@redis:6379",
            'store: "***@redis:6379" is no store, write memory, sqlite:PATH or '
            "redis://127.0.0.1:6379 (say)",
        ),
        in_file(
            "another word for memory",
            "store: »in-memory",
            'store: "in-memory" is no store, write memory',
        ),
        in_file("no store", "store: »false", "store: false is no store, write memory"),
        in_file(
            "no file",
            "store: »'sqlite:'",
            "store: there is no path, write sqlite:./keys.db (say)",
        ),
        in_file(
            "the name of the library alone",
            "store: »sqlite",
            "store: there is no path, write sqlite:./keys.db (say)",
        ),
        in_file(
            "no file, as a URL",
            "store: »sqlite://",
            "store: there is no path, write sqlite:./keys.db (say)",
        ),
        in_file(
            "a file as a URL",
            "store: »sqlite://keys.db",
            "store: a path stands right behind sqlite:, write sqlite:keys.db",
        ),
        in_file(
            "a file as others write it",
            "store: {url: »sqlite:///keys.db}",
            "store.url: a path stands right behind sqlite:, write sqlite:/keys.db, or "
            "sqlite:keys.db for a path relative to this file",
        ),
        in_file(
            "a file from the root, as others write it",
            "store: »sqlite:////tmp/keys.db",
            "store: a path stands right behind sqlite:, write sqlite:/tmp/keys.db",
        ),
        in_file(
            "a database in memory",
            "store: »'sqlite::memory:'",
            "store: a database in memory keeps nothing, write memory",
        ),
        in_file(
            "the same as a URL",
            "store: »'sqlite:///:memory:'",
            "store: a database in memory keeps nothing, write memory",
        ),
        in_file(
            "options behind the path",
            "store: »sqlite:keys.db?mode=rwc",
            "store: options cannot follow the path, remove the ? and what follows",
        ),
        in_file(
            "a path from outside that is no text",
            "store: »sqlite:${ODD}",
            "store: the path is not UTF-8 text, write another",
        ),
        in_file(
            "a folder that is not there",
            "store: »sqlite:./state/keys.db",
            "store: cannot keep anything in ./state/keys.db (no such folder), create it or correct "
            "the path",
        ),
        in_file(
            "a folder from outside that is not there",
            "store: »sqlite:${PASSWORD}/keys.db",
            "store: cannot keep anything in the value of ${PASSWORD} (no such folder), create it "
            "or correct the path",
        ),
        in_file(
            "a name that no folder can have",
            f"store: »sqlite:{'a' * 300}/b",
            f"store: cannot keep anything in {'a' * 73}… (no such folder), create it or correct "
            f"the path",
        ),
        in_file(
            "a folder where a file belongs",
            "store: »sqlite:.",
            "store: . is a folder, write the path of a file: sqlite:./keys.db",
        ),
        in_file(
            "the library by its other name",
            "store: »sqlite3:keys.db",
            'store: "sqlite3" is no store, write sqlite:PATH',
        ),
        in_file(
            "a URL of a file",
            "store: »file:keys.db",
            'store: "file" is no store, write sqlite:PATH',
        ),
        in_file(
            "a path alone",
            "store: »./keys.db",
            'store: "./keys.db" is no store, write sqlite:./keys.db',
        ),
        in_file(
            "the name of a file alone",
            "store: »keys.sqlite",
            'store: "keys.sqlite" is no store, write sqlite:keys.sqlite',
        ),
        in_file(
            "a path as a key",
            "store: {»path: keys.db}",
            "store.path: unknown key, write url: sqlite:PATH",
        ),
        in_file(
            "a bound for what bounds itself",
            "store: {url: redis://redis, »entries: 5}",
            "store.entries: warning: it bounds the memory store and has no effect on this one, "
            "write url: memory or remove it",
        ),
        in_file(
            "a bound for a file",
            "store: {url: sqlite:keys.db, »bytes: 5MiB}",
            "store.bytes: warning: it bounds the memory store and has no effect on this one, write "
            "url: memory or remove it",
        ),
        in_file(
            "a password for a file",
            "store: {url: sqlite:keys.db, »password: '${PASSWORD}'}",
            "store.password: warning: it is for redis and has no effect on this one, write url: "
            "redis://… or remove it",
        ),
        in_file(
            "a prefix in a file",
            "store: {url: sqlite:keys.db, »prefix: a}",
            "store.prefix: warning: it is for redis and has no effect on this one, write url: "
            "redis://… or remove it",
        ),
        in_file(
            "TLS to a file",
            "store: {url: sqlite:keys.db, »tls: {server_name: a.example}}",
            "store.tls: warning: it is for redis and has no effect on this one, write url: "
            "redis://… or remove it",
        ),
        in_file(
            "room for nothing",
            "store: {url: memory, entries: »0}",
            "store.entries: 0 would keep nothing, write 100000 (say)",
        ),
        in_file(
            "room for next to nothing",
            "store: {url: memory, bytes: »10B}",
            "store.bytes: 10B is out of range, write 1KiB to 1TiB",
        ),
        in_file(
            "another word for entries",
            "store: {url: memory, »max_entries: 10}",
            "store.max_entries: unknown key, write entries",
        ),
        in_file(
            "a server that speaks the same",
            "store: »valkey://valkey:6379",
            'store: "valkey" is no store, write redis://',
        ),
        in_file(
            "TLS by another name",
            "store: »redis+tls://redis:6379",
            'store: "redis+tls" is no store, write rediss://',
        ),
        in_file(
            "a cluster",
            "store: »redis-cluster://redis:6379",
            'store: "redis-cluster" is no store, a cluster is not supported, write redis:// and a '
            "single server",
        ),
        in_file(
            "a sentinel",
            "store: »redis+sentinel://redis:26379/mymaster",
            'store: "redis+sentinel" is no store, a sentinel is not asked, write redis:// and a '
            "name that leads to the primary",
        ),
        in_file(
            "a unix socket",
            "store: »unix:/run/redis.sock",
            'store: "unix" is no store, a unix socket is not supported, write '
            "redis://127.0.0.1:6379 (say)",
        ),
        in_file(
            "something else altogether",
            "store: »memcached://cache:11211",
            'store: "memcached" is no store, write memory, sqlite:PATH, redis:// or rediss://',
        ),
        in_file(
            "no host",
            "store: »redis://:6379",
            "store: the URL names no host, write redis://127.0.0.1:6379 (say)",
        ),
        in_file(
            "no host, but what may be a password",
            "store: »redis://app:hunter2",
            "store: host and port cannot be told apart, write redis://HOST:6379 (an IPv6 address "
            "in brackets), and a password as redis://:PASSWORD@HOST",
        ),
        in_file(
            "an address without brackets",
            "store: »redis://::1",
            "store: host and port cannot be told apart, write redis://HOST:6379 (an IPv6 address "
            "in brackets), and a password as redis://:PASSWORD@HOST",
        ),
        in_file(
            "a port out of range",
            "store: »redis://redis:70000",
            'store: "70000" is no port, write a number from 1 to 65535',
        ),
        in_file(
            "where clouds keep credentials",
            "store: »redis://169.254.169.254",
            "store: 169.254.169.254 is link-local, where clouds serve a machine's credentials, "
            "write a host name that stands for it if it is really meant",
        ),
        in_file(
            "a database with a name",
            "store: »redis://redis/main",
            "store: what follows the host is no number of a database, write /0 (say) or remove it",
        ),
        in_file(
            "options in the URL",
            "store: »redis://redis?ssl=true",
            "store: a URL of a store ends with its database, write the rest as keys of store",
        ),
        in_file(
            "a user without a password",
            "store: »redis://hunter2@redis",
            'store: a user needs a password, write password: "${REDIS_PASSWORD}" in store, or '
            "redis://:PASSWORD@HOST if there is no user",
        ),
        in_file(
            "a user without a password, as a key",
            "store: {url: redis://redis, username: »app}",
            'store.username: a user needs a password, write password: "${REDIS_PASSWORD}" in '
            "store, or redis://:PASSWORD@HOST if there is no user",
        ),
        in_file(
            "two passwords",
            "store: {url: '${URL}', password: »'${PASSWORD}'}",
            "store.password: the URL has a password too, remove one of them",
        ),
        in_file(
            "an empty password",
            "store: {url: redis://redis, password: »'${EMPTY}'}",
            "store.password: the password is empty, write ${REDIS_PASSWORD}, or remove it if there "
            "is none",
        ),
        in_file(
            "a user with a space",
            "store: {url: redis://redis, username: »'a b', password: '${PASSWORD}'}",
            'store.username: "a b" is no name of a user, write holdfast (say)',
        ),
        in_file(
            "host and port as keys",
            "store: {»host: redis}",
            "store.host: unknown key, write url: redis://HOST:PORT/DATABASE or sqlite:PATH, or one "
            "of username, password, prefix, timeout, permit_life, tls, entries, bytes",
        ),
        in_file(
            "a prefix with a space",
            "store: {url: redis://redis, prefix: »'a b'}",
            'store.prefix: "a b" is no prefix, write up to 128 ASCII letters, digits and signs (no '
            "spaces, no quotes)",
        ),
        in_file(
            "no prefix",
            "store: {url: redis://redis, prefix: »''}",
            'store.prefix: "" is no prefix, write up to 128 ASCII letters, digits and signs (no '
            "spaces, no quotes)",
        ),
        in_file(
            "a timeout without a unit",
            "store: {url: redis://redis, timeout: »200}",
            "store.timeout: 200 has no unit, write 200ms",
        ),
        in_file(
            "the life of a permit without a unit",
            "store: {url: redis://redis, permit_life: »100}",
            "store.permit_life: 100 has no unit, write 100ms",
        ),
        in_file(
            "a permit that lives for ever",
            "store: {url: redis://redis, permit_life: »none}",
            'store.permit_life: "none" is no duration, write auto, or 100ms (say)',
        ),
        in_file(
            "no time to answer",
            "store: {url: redis://redis, timeout: »0s}",
            "store.timeout: 0s leaves no time for any answer, write 200ms (say)",
        ),
        in_file(
            "too much of it",
            "store: {url: redis://redis, timeout: »1m}",
            "store.timeout: 1m is longer than 10s, write 10s or less",
        ),
        in_file(
            "TLS for nothing",
            "store: {url: redis://redis, »tls: {server_name: a.example}}",
            "store.tls: warning: the URL is not rediss, so this has no effect, write rediss:// or "
            "remove it",
        ),
        in_file(
            "any certificate",
            "store: {url: rediss://redis, tls: {verify: »false}}",
            "store.tls.verify: warning: anyone on the way can pose as this store, write ca: FILE "
            "to trust its certificate",
        ),
        in_file(
            "an authority that is not there",
            "store: {url: rediss://redis, tls: {ca: »none.pem}}",
            "store.tls.ca: cannot read none.pem (no such file), mount it or correct the path",
        ),
        in_file(
            "a value from outside that is no store",
            "store: »${PASSWORD}",
            "store: the value of ${PASSWORD} is no store, write redis://127.0.0.1:6379 (say)",
        ),
    ],
)
def test_line(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(TOP.replace("{{", "{").replace("}}", "}").replace("{}", marked), expected, ENVIRON)


def test_a_password_is_never_shown(loaded: Load) -> None:
    for written in (
        f"redis://app:{PASSWORD}@redis:6380/2",
        f"{{url: redis://app@redis:6380/2, password: {PASSWORD}}}",
        "${URL}",
        "{url: 'redis://app:${PASSWORD}@redis:6380/2'}",
        "{url: 'redis://redis', username: '${USER}', password: '${PASSWORD}'}",
    ):
        found = loaded(TOP.format(f"store: {written}"), ENVIRON)
        assert isinstance(found.settings.store, RedisSettings)
        assert found.settings.store.password == PASSWORD
        assert PASSWORD not in repr(found)
        assert PASSWORD not in json.dumps(found.effective)


def test_what_is_in_force_is_shown_in_long_form(loaded: Load) -> None:
    shown: dict[str, Any] = loaded(TOP.format("")).effective
    built_in = {
        "prefix": "holdfast",
        "timeout": "200ms",
        "permit_life": "auto",
        "tls": {"verify": True},
        "entries": 100_000,
        "bytes": "64MiB",
    }
    assert shown["store"] == {"url": "memory", **built_in}
    shown = loaded(TOP.format("store: ${URL}"), ENVIRON).effective
    assert shown["store"] == {"url": "redis://***@redis:6380/2", **built_in}
    shown = loaded(TOP.format("store: {url: 'rediss://[::1]', prefix: a}")).effective
    assert shown["store"] == {"url": "rediss://[::1]:6379/0", **built_in, "prefix": "a"}
    shown = loaded(TOP.format("store: sqlite:/keys.db")).effective
    assert shown["store"] == {"url": "sqlite:/keys.db", **built_in}
    shown = loaded(TOP.format("store: sqlite:${PASSWORD}"), ENVIRON).effective
    assert shown["store"] == {"url": "sqlite:***", **built_in}


def test_a_later_file_chooses_another(folder: Path) -> None:
    (folder / "base.yaml").write_text(TOP.format("store: {url: redis://one, timeout: 1s}"))
    (folder / "site.yaml").write_text("store: {url: redis://two}\n")
    (folder / "here.yaml").write_text("store: memory\n")
    (folder / "file.yaml").write_text("store: sqlite:keys.db\n")
    assert load(["base.yaml", "site.yaml"], {}).settings.store == RedisSettings("two", timeout=1)
    assert load(["base.yaml", "here.yaml"], {}).settings.store == MemorySettings()
    assert load(["base.yaml", "file.yaml"], {}).settings.store == SqliteSettings(
        str(folder / "keys.db")
    )


def test_what_another_file_has_no_use_for_waits(folder: Path) -> None:
    (folder / "base.yaml").write_text(TOP.format("store: {url: memory, entries: 5, prefix: a}"))
    for name, store in (
        ("site.yaml", RedisSettings("redis", prefix="a")),
        ("file.yaml", SqliteSettings(str(folder / "keys.db"))),
    ):
        url = "redis://redis" if isinstance(store, RedisSettings) else "sqlite:keys.db"
        (folder / name).write_text(f"store: {{url: '{url}'}}\n")
        found = load(["base.yaml", name], {})
        assert found.settings.store == store
        assert found.warnings == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("sqlite:keys.db", "keys.db", id="beside the file"),
        pytest.param("sqlite:./keys.db", "keys.db", id="the same"),
        pytest.param("SQLite:keys.db", "keys.db", id="in any letters"),
        pytest.param("sqlite:state/a b.db", "state/a b.db", id="in a folder beside the file"),
        pytest.param("sqlite:${NAME}.db", "keys.db", id="from outside"),
        pytest.param("{url: 'sqlite:keys.db', timeout: 1s}", "keys.db", id="and a time to answer"),
    ],
)
def test_a_file(folder: Path, written: str, expected: str) -> None:
    (folder / "conf" / "state").mkdir(parents=True)
    (folder / "conf" / "holdfast.yaml").write_text(TOP.format(f"store: {written}"))
    found = load(["conf/holdfast.yaml"], {"NAME": "keys"})
    timeout = 1.0 if "timeout" in written else 0.2
    path = str(folder / "conf" / expected)
    assert found.settings.store == SqliteSettings(path, timeout)
    assert found.warnings == ()


def test_a_file_by_its_whole_path(loaded: Load, folder: Path) -> None:
    path = str(folder / "keys.db")
    assert loaded(TOP.format(f"store: sqlite:{path}")).settings.store == SqliteSettings(path)
    assert not (folder / "keys.db").exists(), "a check makes no files"
