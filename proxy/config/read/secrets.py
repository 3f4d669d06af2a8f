"""Secrets: a warning where the file has one in clear text, masks in the effective configuration."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, TypedScalar, scalars
from proxy.config.values.base import Token
from proxy.config.values.headers import HeaderValue, looks_secret
from proxy.config.values.stores import Password, StoreUrl


def check_secrets(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Warn of secrets that are written in the file itself."""
    for key, scalar in scalars(file):
        if _is_secret(key, scalar) and not scalar.written.references:
            diagnostics.warn(
                scalar,
                f"a secret stands in the file, write {_reference(key, scalar)} or ${{file:PATH}}",
            )


def effective(mapping: TypedMapping) -> dict[str, Any]:
    """Return *mapping* as it could be written in a file, in long form, with secrets masked."""
    return {entry.key: shown(entry.node, entry.key) for entry in mapping.entries.values()}


def shown(node: TypedNode, key: str) -> object:
    """Return *node*, the value of *key*, as it could be written, with secrets masked."""
    if isinstance(node, TypedMapping):
        return False if node.is_off else effective(node)
    if isinstance(node, TypedList):
        return [shown(item, key) for item in node.items]
    return (node.value_type.masked if _is_hidden(key, node) else node.value_type.write)(node.value)


def hidden_values(mapping: TypedMapping) -> dict[tuple[str, ...], bytes]:
    """Return a digest of each value that :func:`effective` masks, by its path.

    A route's path has its name, and a list is one value.
    """
    return dict(_hidden_below((), mapping))


def _hidden_below(
    path: tuple[str, ...], mapping: TypedMapping
) -> Iterator[tuple[tuple[str, ...], bytes]]:
    for entry in mapping.entries.values():
        at, node = (*path, entry.key), entry.node
        if isinstance(node, TypedMapping):
            yield from _hidden_below(at, node)
        elif at == ("routes",) and isinstance(node, TypedList):
            for route in node.items:
                if isinstance(route, TypedMapping) and (name := route.scalar("name")):
                    yield from _hidden_below((*at, str(name.value)), route)
        elif texts := [scalar.written.text for scalar in _hidden_in(entry.key, node)]:
            yield at, blake2b("\0".join(texts).encode(errors="surrogatepass")).digest()


def _hidden_in(key: str, node: TypedNode) -> Iterator[TypedScalar]:
    if isinstance(node, TypedScalar):
        if _is_hidden(key, node):
            yield node
        return
    within = node.items if isinstance(node, TypedList) else ()
    for item in within:
        yield from _hidden_in(key, item)


def _is_hidden(key: str, scalar: TypedScalar) -> bool:
    return bool(scalar.written.references) or _is_secret(key, scalar)


def _is_secret(key: str, scalar: TypedScalar) -> bool:
    if isinstance(scalar.value_type, HeaderValue):
        return looks_secret(key, scalar.value)
    if isinstance(scalar.value_type, StoreUrl):
        return scalar.value is not None and scalar.value.password is not None
    return isinstance(scalar.value_type, Token | Password)


def _reference(key: str, scalar: TypedScalar) -> str:
    """Return what to write in place of a secret: ``${X_API_KEY}`` for a header X-Api-Key."""
    if isinstance(scalar.value_type, HeaderValue):
        name = "".join(char if char.isalnum() else "_" for char in key.upper())
        return f"${{{name}}}"
    return "${REDIS_URL}" if isinstance(scalar.value_type, StoreUrl) else scalar.value_type.example
