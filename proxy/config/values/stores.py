"""Value types of the store: its URL (memory, SQLite file or Redis), credentials and key prefix."""

import re
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar
from urllib.parse import unquote

from proxy.config.diagnostics.diagnostics import InvalidSecret, InvalidValue
from proxy.config.diagnostics.nearest import meant
from proxy.config.source.nodes import Scalar
from proxy.config.values.addresses import host_and_port
from proxy.config.values.base import JsonSchema, PatternText, ValueType, string_schema
from proxy.policy.settings import StoreSettings, UpstreamTls
from proxy.policy.settings.store import MemorySettings, RedisSettings, SqliteSettings

_PORT = 6379
_HOST_AND_PORT = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")
# Visible ASCII but " and \\, as in names.
_PREFIX = r"[!#-\[\]-~]{1,128}"

_MEMORY = frozenset({"mem", "local", "in-memory", "in_memory", "inmemory", "none", "false"})
"""Words of other products for the store in memory."""

_STORES = "memory, sqlite:PATH, redis:// or rediss://"
_CLUSTER = "a cluster is not supported, write redis:// and a single server"
_SENTINEL = "a sentinel is not asked, write redis:// and a name that leads to the primary"
_SOCKET = "a unix socket is not supported, write redis://127.0.0.1:6379 (say)"
_SCHEMES = {
    "valkey": "write redis://",
    "valkeys": "write rediss://",
    "redis+tls": "write rediss://",
    "redis+ssl": "write rediss://",
    "tls": "write rediss://",
    "redis-cluster": _CLUSTER,
    "redis+cluster": _CLUSTER,
    "redis+sentinel": _SENTINEL,
    "redis-sentinel": _SENTINEL,
    "unix": _SOCKET,
    "redis+unix": _SOCKET,
    "redis-socket": _SOCKET,
    "sqlite3": "write sqlite:PATH",
    "file": "write sqlite:PATH",
}
"""Schemes that other products accept, and the message for each."""


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """The parts of a URL of a Redis server."""

    kind: ClassVar[type[StoreSettings]] = RedisSettings
    unused_keys: ClassVar[tuple[str, ...]] = ("entries", "bytes")
    host: str
    port: int = _PORT
    database: int = 0
    username: str | None = None
    password: str | None = field(repr=False, default=None)
    is_encrypted: bool = False
    """Whether the scheme is ``rediss``."""

    def settings(self, given: dict[str, Any]) -> RedisSettings:
        """Make the settings of this server from the other keys that are *given*."""
        in_url = {"username": self.username, "password": self.password, "tls": UpstreamTls()}
        given = in_url | given
        if not self.is_encrypted:
            given["tls"] = None
        return RedisSettings(self.host, self.port, self.database, **_only(given, RedisSettings))


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """An SQLite file on this machine."""

    kind: ClassVar[type[StoreSettings]] = SqliteSettings
    password: ClassVar[str | None] = None
    unused_keys: ClassVar[tuple[str, ...]] = (
        *("entries", "bytes"),
        *("username", "password", "prefix", "permit_life", "tls"),
    )
    path: str

    def settings(self, given: dict[str, Any]) -> SqliteSettings:
        """Make the settings of this file from the other keys that are *given*."""
        # The key `bytes` is for memory; the field of the same name is not to be configured.
        given = {key: value for key, value in given.items() if key not in self.unused_keys}
        return SqliteSettings(self.path, **_only(given, SqliteSettings))


StoreLocation = RedisUrl | SqliteFile | None
"""What the URL of a store says; None for ``memory``, which is in no other place."""


def store_kind(location: StoreLocation) -> type[StoreSettings]:
    """Return the settings of the store at *location*: they say what it can do."""
    return MemorySettings if location is None else location.kind


def store_settings(url: StoreLocation, **given: Any) -> StoreSettings:  # noqa: ANN401 - fields of any type
    """Make the settings of the store that *url* names; keys *given* for others have no effect."""
    return MemorySettings(**_only(given, MemorySettings)) if url is None else url.settings(given)


def _only(given: dict[str, Any], settings: type[StoreSettings]) -> dict[str, Any]:
    """Return those of the keys *given* that are fields of *settings*."""
    known = {field.name for field in fields(settings)}
    return {key: value for key, value in given.items() if key in known}


class StoreUrl(ValueType[StoreLocation]):
    """The store: ``memory`` (None), ``sqlite:PATH`` or ``redis://user:password@host/database``."""

    none = True
    noun = "store"
    example = "redis://127.0.0.1:6379"
    expects = f"memory, sqlite:PATH or {example} (rediss:// for TLS)"
    examples = ("memory", "sqlite:./keys.db", example)
    words = ("memory",)
    kinds: ClassVar = (
        "memory (of this process), sqlite:PATH (a file for idempotency keys; limits are "
        "counted in memory), or redis://user:password@host:port/database, rediss:// for TLS."
    )
    """The text of the key: every kind of store, and how it is written."""

    def read(self, scalar: Scalar) -> StoreLocation:
        text = scalar.text
        if text == "memory":
            return None
        if re.match(r"sqlite(:|$)", text, re.IGNORECASE):
            return SqliteFile(_sqlite_path(scalar))
        scheme, separator, rest = text.partition("://")
        if not separator or scheme.lower() not in {"redis", "rediss"}:
            raise InvalidValue(self._no_redis(scalar))
        before, at, after = rest.rpartition("@")
        if re.search(r"[/@#?]", before):
            raise InvalidSecret(self._how_to_escape(scalar))
        username, password = _credentials(before) if at else (None, None)
        if re.search(r"[?#]", after):
            raise InvalidSecret(
                "a URL of a store ends with its database, write the rest as keys of store"
            )
        authority, _, database = after.partition("/")
        if not _HOST_AND_PORT.fullmatch(authority):
            # Not quoted: the text may be a password whose host is missing.
            raise InvalidSecret(
                f"host and port cannot be told apart, write redis://HOST:{_PORT} (an IPv6 address "
                f"in brackets), and a password as redis://:PASSWORD@HOST"
            )
        host, number = host_and_port(authority, _PORT, self.example)
        return RedisUrl(
            host, number, _database(database), username, password, scheme.lower() == "rediss"
        )

    def _no_redis(self, scalar: Scalar) -> str:
        text = scalar.text
        scheme, colon, rest = text.partition(":")
        if text.lower() in _MEMORY:
            return f"{scalar.shown} is no store, write memory"
        suggestion = _SCHEMES.get(scheme.lower())
        if suggestion:
            return f'"{scheme}" is no store, {suggestion}'
        if colon and rest.startswith("//"):
            near = meant(scheme, ("redis", "rediss"))
            hint = f"did you mean {near}://?" if near else f"write {_STORES}"
            return f'"{scheme}" is no store, {hint}'
        return f"{scalar.shown} {self._instead_of(text)}"

    def _instead_of(self, text: str) -> str:
        """Return the rest of the message for *text*, which has no scheme."""
        scheme, colon, rest = text.partition(":")
        if colon and "@" not in text and re.fullmatch(r"[0-9]{1,5}(/[0-9]*)?", rest):
            return f"has no scheme, write redis://{text}"
        near = self.meant(text)
        if colon and "@" not in text and meant(scheme, ("sqlite",)):
            near = f"sqlite:{rest}"
        if near:
            return f"is no store, did you mean {near}?"
        if "@" not in text and re.match(r"\.{0,2}/|.*\.(db|sqlite3?)$", text):
            return f"is no store, write sqlite:{text}"
        return f"is no store, write memory, sqlite:PATH or {self.example} (say)"

    @staticmethod
    def _how_to_escape(scalar: Scalar) -> str:
        problem = "the password in this URL has characters that must be escaped, write"
        if scalar.references:
            return f'{problem} it as a key of its own: {{url: redis://…, password: "${{…}}"}}'
        return f'{problem} %2F for "/", %40 for "@", %23 for "#"'

    def write(self, value: StoreLocation) -> str:
        if value is None:
            return "memory"
        if isinstance(value, SqliteFile):
            return f"sqlite:{value.path}"
        scheme = "rediss" if value.is_encrypted else "redis"
        host = f"[{value.host}]" if ":" in value.host else value.host
        hidden = "***@" if value.username or value.password else ""
        return f"{scheme}://{hidden}{host}:{value.port}/{value.database}"

    def masked(self, value: StoreLocation) -> str:
        # A path that was interpolated may contain a secret.
        return "sqlite:***" if isinstance(value, SqliteFile) else self.write(value)

    def accepted(self) -> JsonSchema:
        redis = r"[rR][eE][dD][iI][sS][sS]?://[^?#\s]+"
        return string_schema(rf"^(memory|[sS][qQ][lL][iI][tT][eE]:(?!//|:memory:)[^?]+|{redis})$")


class Username(PatternText):
    """The user name with which the proxy authenticates to a store."""

    noun = "name of a user"
    example = "holdfast"
    expects = f"the name of a user, without spaces: {example}"
    pattern = r"[^\s\x00-\x1f\x7f\ud800-\udfff]+"
    is_hidden = True  # a user name is half of a credential
    schema: ClassVar = {"type": ["string", "number"], "minLength": 1}


class Password(ValueType[str]):
    """The password of a store. Never quoted in messages."""

    noun = "password"
    example = "${REDIS_PASSWORD}"
    expects = f"the password: {example}"
    is_hidden = True  # nothing of a secret may be shown
    schema: ClassVar = {"type": ["string", "number"], "minLength": 1}

    def read(self, scalar: Scalar) -> str:
        if not scalar.text:
            raise InvalidSecret(
                f"the password is empty, write {self.example}, or remove it if there is none"
            )
        try:
            scalar.text.encode()
        except UnicodeEncodeError:  # a variable can contain bytes that are no characters
            raise InvalidSecret("the password is not UTF-8 text, write another") from None
        return scalar.text


class KeyPrefix(PatternText):
    """The prefix of all keys in a store."""

    noun = "prefix"
    example = "holdfast"
    pattern = _PREFIX
    instead = "up to 128 ASCII letters, digits and signs (no spaces, no quotes)"
    expects = instead
    schema = string_schema(f"^{_PREFIX}$")


def _sqlite_path(scalar: Scalar) -> str:
    """Return the path of ``sqlite:PATH``, relative to the configuration file that names it."""
    written = scalar.text.partition(":")[2]
    path = written.removeprefix("//")
    if path.strip("/") == ":memory:":
        raise InvalidSecret("a database in memory keeps nothing, write memory")
    if not path.strip("/") or "\0" in path:
        raise InvalidSecret("there is no path, write sqlite:./keys.db (say)")
    if path != written:
        # Some products read sqlite:///keys.db as a relative path, others as one from the root.
        instead = re.sub("^/+", "/", path)
        if "@" in path:  # the text before it may be a password
            instead = "PATH"
        elif path.startswith("/") and not path.startswith("//"):
            instead += f", or sqlite:{path[1:]} for a path relative to this file"
        raise InvalidValue(f"a path stands right behind sqlite:, write sqlite:{instead}")
    if "?" in path:
        raise InvalidSecret("options cannot follow the path, remove the ? and what follows")
    try:
        path.encode()
    except UnicodeEncodeError:  # a variable can contain bytes that are no characters
        raise InvalidSecret("the path is not UTF-8 text, write another") from None
    return str(scalar.position.source.directory / path)


def _credentials(text: str) -> tuple[str | None, str | None]:
    """Return user and password of a URL; None for what is absent."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise InvalidSecret('a "%" in the password of this URL must be escaped, write %25 for "%"')
    username, _, password = text.partition(":")
    try:
        return _unescaped(username), _unescaped(password)
    except UnicodeError:
        raise InvalidSecret(
            "the password in this URL is not UTF-8 text, write it as a key of "
            'its own: {url: redis://…, password: "${…}"}'
        ) from None


def _unescaped(text: str) -> str | None:
    plain = unquote(text, errors="strict")
    plain.encode()  # a variable can contain bytes that are no characters
    return plain or None


def _database(text: str) -> int:
    if not text:
        return 0
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise InvalidSecret(
            "what follows the host is no number of a database, write /0 (say) or remove it"
        )
    return int(text)
