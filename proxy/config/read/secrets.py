"""What must not be seen: in the file in clear, or in the effective configuration."""

from typing import Any

from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.read.typed_tree import TypedList, TypedMapping, TypedNode, TypedScalar, leaves
from proxy.config.values.base import Token
from proxy.config.values.headers import HeaderValue, looks_secret
from proxy.config.values.stores import Password, RedisUrl, StoreUrl


def check_secrets(file: TypedMapping, diagnostics: Diagnostics) -> None:
    """Warn of secrets that stand in the file itself."""
    for key, leaf in leaves(file):
        if _is_secret(key, leaf) and not leaf.scalar.references:
            diagnostics.warn(
                leaf.position,
                leaf.path,
                f"a secret stands in the file, write {_reference(key, leaf)} or ${{file:PATH}}",
            )


def effective(branch: TypedMapping) -> dict[str, Any]:
    """*branch* as it could stand in a file, in long form, with every secret masked."""
    return {entry.key: shown(entry.node, entry.key) for entry in branch.entries.values()}


def shown(read: TypedNode, key: str) -> object:
    """What stands under *key*, the same way."""
    if isinstance(read, TypedMapping):
        return False if read.is_off else effective(read)
    if isinstance(read, TypedList):
        return [shown(item, key) for item in read.items]
    is_hidden = read.scalar.references or _is_secret(key, read)
    return (read.kind.masked if is_hidden else read.kind.write)(read.value)


def _is_secret(key: str, leaf: TypedScalar) -> bool:
    if isinstance(leaf.kind, HeaderValue):
        return looks_secret(key, leaf.value)
    if isinstance(leaf.kind, StoreUrl):
        return isinstance(leaf.value, RedisUrl) and leaf.value.password is not None
    return isinstance(leaf.kind, Token | Password)


def _reference(key: str, leaf: TypedScalar) -> str:
    """What to write in place of a secret: ``${X_API_KEY}`` for a header X-Api-Key."""
    if isinstance(leaf.kind, HeaderValue):
        name = "".join(char if char.isalnum() else "_" for char in key.upper())
        return f"${{{name}}}"
    return "${REDIS_URL}" if isinstance(leaf.kind, StoreUrl) else leaf.kind.example
