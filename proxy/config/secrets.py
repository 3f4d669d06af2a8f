"""What must not be seen: in the file in clear, or in the effective configuration."""

from typing import Any

from proxy.config.faults import Findings
from proxy.config.kinds.base import Token
from proxy.config.kinds.headers import HeaderValue, looks_secret
from proxy.config.kinds.stores import Password, RedisUrl, StoreUrl
from proxy.config.tree import Branch, Items, Leaf, Read, leaves


def check_secrets(file: Branch, findings: Findings) -> None:
    """Warn of secrets that stand in the file itself."""
    for key, leaf in leaves(file):
        if _is_secret(key, leaf) and not leaf.scalar.references:
            findings.warn(
                leaf.spot,
                leaf.path,
                f"a secret stands in the file, write {_reference(key, leaf)} or ${{file:PATH}}",
            )


def effective(branch: Branch) -> dict[str, Any]:
    """*branch* as it could stand in a file, in long form, with every secret masked."""
    return {entry.key: shown(entry.node, entry.key) for entry in branch.entries.values()}


def shown(read: Read, key: str) -> object:
    """What stands under *key*, the same way."""
    if isinstance(read, Branch):
        return False if read.is_off else effective(read)
    if isinstance(read, Items):
        return [shown(item, key) for item in read.items]
    is_hidden = read.scalar.references or _is_secret(key, read)
    return (read.kind.masked if is_hidden else read.kind.write)(read.value)


def _is_secret(key: str, leaf: Leaf) -> bool:
    if isinstance(leaf.kind, HeaderValue):
        return looks_secret(key, leaf.value)
    if isinstance(leaf.kind, StoreUrl):
        return isinstance(leaf.value, RedisUrl) and leaf.value.password is not None
    return isinstance(leaf.kind, Token | Password)


def _reference(key: str, leaf: Leaf) -> str:
    """What to write in place of a secret: ``${X_API_KEY}`` for a header X-Api-Key."""
    if isinstance(leaf.kind, HeaderValue):
        name = "".join(char if char.isalnum() else "_" for char in key.upper())
        return f"${{{name}}}"
    return "${REDIS_URL}" if isinstance(leaf.kind, StoreUrl) else leaf.kind.example
