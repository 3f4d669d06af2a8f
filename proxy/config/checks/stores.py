"""Checks of the store."""

import re
from pathlib import Path

from proxy.config.checks.certificates import check_client_tls
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.typed_tree import TypedMapping, TypedScalar, key_of
from proxy.config.source.files import is_folder
from proxy.config.values.stores import RedisUrl, SqliteFile

_FOR_MEMORY = ("entries", "bytes")


def check_store(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Check the folder, unused keys, credentials and TLS settings of the store."""
    store = file.mapping("store")
    url = store.scalar("url") if store else None
    if store is None or url is None:
        return
    match url.value:
        case RedisUrl():
            _check_credentials(store, url.value, diagnostics)
        case SqliteFile():
            _check_folder(url, diagnostics)
    # Keys for redis are allowed beside `memory`: another environment may use redis.
    if url.value is not None:
        _check_unused(store, url, url.value.unused_keys, diagnostics)
    tls = store.mapping("tls")
    if tls is None or not tls.entries:
        return
    if isinstance(url.value, RedisUrl) and not url.value.is_encrypted:
        diagnostics.warn(
            key_of(store.entries["tls"]),
            "the URL is not rediss, so this has no effect, write rediss:// or remove it",
        )
    check_client_tls(tls, "this store", diagnostics)


def _check_folder(url: TypedScalar, diagnostics: Diagnostics) -> None:
    """Check that the folder of the SQLite file exists: the file is created, the folder is not."""
    shown = re.sub("^sqlite:", "", url.written.bare, flags=re.IGNORECASE)
    path = Path(url.value.path)
    if is_folder(path):
        diagnostics.fault(url, f"{shown} is a folder, write the path of a file: sqlite:./keys.db")
    elif not is_folder(path.parent):
        diagnostics.fault(
            url, f"cannot keep anything in {shown} (no such folder), create it or correct the path"
        )


def _check_unused(
    store: TypedMapping, url: TypedScalar, keys: tuple[str, ...], diagnostics: Diagnostics
) -> None:
    """Warn of keys that this store does not use.

    Not where another file chose the store: the keys may be meant for the store of their file.
    """
    for key in keys:
        entry = store.entries.get(key)
        if entry is None or entry.position.source != url.position.source:
            continue
        is_bound = key in _FOR_MEMORY
        effect = "it bounds the memory store and" if is_bound else "it is for redis and"
        instead = "url: memory" if is_bound else "url: redis://…"
        diagnostics.warn(
            key_of(entry), f"{effect} has no effect on this one, write {instead} or remove it"
        )


def _check_credentials(store: TypedMapping, url: RedisUrl, diagnostics: Diagnostics) -> None:
    for key, in_url in (("username", url.username), ("password", url.password)):
        scalar = store.scalar(key)
        if scalar is not None and in_url is not None:
            diagnostics.fault(scalar, f"the URL has a {key} too, remove one of them")
    if url.password is not None or "password" in store.entries.keys() | store.broken:
        return
    scalar = store.scalar("username") or (store.scalar("url") if url.username else None)
    if scalar is not None:
        diagnostics.fault(
            scalar,
            'a user needs a password, write password: "${REDIS_PASSWORD}" in store, or '
            "redis://:PASSWORD@HOST if there is no user",
        )
