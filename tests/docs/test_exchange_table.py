"""The table at the class of the exchange: it has every writer of every attribute, and no other."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from proxy.core.exchange import Exchange
from proxy.replay.exchange import ReplayExchange
from tests.docs.generated.exchange_table import table_rows

PACKAGE = Path(__file__).parent.parent.parent / "proxy"
MAKERS = ("server/exchange", "server/response_writer", "replay/exchange")
"""Modules of the classes that are exchanges: there *self* is one."""
BASE = "core/exchange"
ATTRIBUTES = {
    name
    for name in (*Exchange.__slots__, "known_record", "earlier_attempts")
    if not name.startswith("_")
}


def writes(path: Path) -> Iterator[tuple[str, str]]:
    """Attributes of exchanges that a module writes to after their birth, each with its writer."""
    module = path.relative_to(PACKAGE).with_suffix("").as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_birth = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
        for node in ast.walk(function)
        if module == BASE
    }
    for node in ast.walk(tree):
        if id(node) in at_birth:
            continue
        written = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            written = node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # Of the attributes only ``attempts`` has parts that come one by one.
            within = node.func.value
            if node.func.attr == "append" and isinstance(within, ast.Attribute):
                written = within
        if (
            written is not None
            and written.attr in ATTRIBUTES
            and is_exchange(written.value, module)
        ):
            yield written.attr, module


def is_exchange(value: ast.expr, module: str) -> bool:
    name = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
    is_self = name == "self" and module in (*MAKERS, BASE)
    return name.lstrip("_") == "exchange" or is_self


def stands_for(writer: str, module: str) -> bool:
    """Whether the table means *module* by *writer*."""
    if writer == "maker":
        return module in MAKERS
    return f"{module}/".startswith(f"{writer}/")


def rows() -> dict[str, set[str]]:
    """By attribute, all writers that the table names."""
    found: dict[str, set[str]] = {}
    for names, writers, _ in table_rows():
        for name in names.split(", "):
            words = {word.strip() for word in re.split("[;,]", writers)}
            found.setdefault(name, set()).update(w for w in words if re.fullmatch("[a-z_/]+", w))
    return found


@cache
def all_writes() -> set[tuple[str, str]]:
    return {write for path in PACKAGE.rglob("*.py") for write in writes(path)}


def test_every_attribute_has_its_row() -> None:
    assert rows().keys() == ATTRIBUTES


def test_every_writer_is_in_the_table() -> None:
    table = rows()
    unnamed = {
        (attribute, module)
        for attribute, module in all_writes()
        if not any(stands_for(writer, module) for writer in table[attribute])
    }
    assert not unnamed


def test_everyone_in_the_table_writes() -> None:
    found = all_writes()
    idle = {
        (attribute, writer)
        for attribute, writers in rows().items()
        for writer in writers - {"maker"}  # gives __init__ what it begins with
        if not any(name == attribute and stands_for(writer, module) for name, module in found)
    }
    assert not idle


def test_the_writes_are_found() -> None:
    """The search would find a new one."""
    found = all_writes()
    assert ("attempts", "upstream/upstream") in found
    assert ("target", "server/admission") in found  # within a tuple
    assert ("body", "server/exchange") in found
    assert ("expired", "core/exchange") in found
    assert issubclass(ReplayExchange, Exchange)
