"""What each package may import, read off the imports.

A package is a folder of ``proxy/``. It may import itself and what its row of ARROWS names; nothing
points back up. PARTS is finer: each folder and module of the packages there may import, of its own
package, only what its row names. ``docs/architecture.md`` says the same.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "proxy"

ARROWS: dict[str, set[str]] = {
    "__init__": set(),  # the version, the project's address, and the life of a request
    "http": set(),  # a leaf, and pure
    "policy": {"http"},  # pure
    "net": {"policy"},  # sockets, for whoever listens or connects; of policy/ the settings alone
    "core": {"http", "policy"},
    "upstream": {"core", "http", "net", "policy"},
    "stores": {"core", "http", "net", "policy"},
    "pipeline": {"core", "http", "net", "policy", "stores", "upstream"},
    "server": {"core", "http", "net", "policy"},
    # Dead letters are sent again through the pipeline, without a client:
    "replay": {"core", "http", "pipeline", "policy", "stores"},
    # What was handed off is sent by one attempt of the pipeline, and clients may ask for it:
    "delivery": {"core", "http", "pipeline", "policy", "stores", "upstream"},
    # The stages without listeners, in virtual time; and what they tell of one request:
    "simulation": {"core", "http", "net", "pipeline", "policy", "stores", "upstream"},
    "explain": {"config", "core", "http", "policy", "simulation"},
    # The schema of the file has the address of its version:
    "config": {"__init__", "http", "policy"},
    "observe": {"core", "http", "policy"},
    "admin": {"core", "http", "net", "policy"},
    # Wires all of the above:
    "app": {
        "__init__",
        "admin",
        "config",
        "core",
        "delivery",
        "http",
        "net",
        "observe",
        "pipeline",
        "policy",
        "replay",
        "server",
        "stores",
        "upstream",
    },
    # The process around an app, and several processes that serve as one:
    "runtime": {
        "__init__",
        "admin",
        "app",
        "config",
        "core",
        "http",
        "net",
        "observe",
        "policy",
        "server",
    },
    "cli": {
        "__init__",
        "config",
        "core",
        "demo",  # its upstream, as a command
        "explain",
        "http",
        "policy",
        "runtime",
        "simulation",
    },
    "__main__": {"cli"},
    "demo": set(),  # a world of its own: it only starts the command
}

PARTS: dict[str, dict[str, set[str]]] = {
    "policy": {
        "__init__": set(),
        "settings": set(),
        "reasons": set(),
        "window": set(),
        "fair_share": set(),
        "body_rate": set(),
        "attempt": {"reasons"},
        "breaker": {"attempt", "settings", "window"},
        "repeatable": {"attempt", "reasons", "settings"},
        "verdict_meaning": {"reasons", "repeatable"},
        "explain_command": {
            "attempt",
            "caller_fields",
            "reasons",
            "repeatable",
            "settings",
            "verdict_meaning",
        },
        "failure_answers": {"attempt"},
        "failure_category": {"attempt", "settings"},
        "routing": {"settings"},
        "throttle": {"fair_share", "settings"},
        "caller_fields": {"settings", "throttle"},
        "retry": {"attempt", "reasons", "repeatable", "settings", "window"},
        "idempotency": {"attempt", "repeatable", "settings"},
        "dead_letter": {"attempt", "failure_answers", "failure_category", "retry", "settings"},
        "delivery": {
            *("attempt", "dead_letter", "failure_category", "fair_share", "reasons"),
            *("repeatable", "retry", "settings"),
        },
    },
    "config": {
        "diagnostics": set(),
        "source": {"diagnostics"},
        "values": {"diagnostics", "source"},
        "schema": {"diagnostics", "source", "values"},
        "read": {"diagnostics", "schema", "source", "values"},
        "checks": {"diagnostics", "read", "source", "values"},
        "loaded": {"diagnostics"},
        "changes": {"loaded"},
        "loader": {"checks", "diagnostics", "loaded", "read", "schema", "source"},
        "__init__": {"diagnostics", "loaded", "loader", "read"},
    },
    "stores": {
        "ports": set(),
        "__init__": {"ports"},
        "memory": {"__init__", "ports"},
        "sqlite_file": {"__init__", "ports"},
        # The file has the keys; limits are counted in memory.
        "sqlite": {"__init__", "memory", "ports", "sqlite_file"},
        "dead_letters": {"__init__", "ports", "sqlite_file"},
        # Deliveries and dead letters are in one file: a delivery that failed is a dead letter.
        "deliveries": {"__init__", "dead_letters", "ports", "sqlite_file"},
        "redis": {"__init__", "ports"},
        "opening": {"__init__", "memory", "ports", "redis", "sqlite"},
    },
}

# Where to find each thing from outside; what is not listed must be in the
# standard library.
ONLY_IN: dict[str, set[str]] = {
    "aiohttp": {"server", "admin", "demo"},
    "httptools": {"upstream"},
    "hiredis": {"stores"},
    "uvloop": {"runtime"},
    "yaml": {"config", "demo"},
    "click": {"cli"},
    "rich": {"cli"},
    # Time and chance come from core's Clock, so that tests can say what they
    # are. Observe writes time stamps.
    "time": {"core", "observe", "demo"},
    "random": {"core", "demo"},
    # Commands talk to the admin listener; requests go out through upstream/.
    "http.client": {"cli"},
    # Whatever may wait for a disk does so in a thread of its own.
    "sqlite3": {"stores"},
    # A proxy that does not answer keeps no key of `status --watch` waiting.
    "threading": {"stores", "observe", "cli"},
    "queue": {"stores", "observe"},
    "urllib.request": set(),
}

# Names by which a connection to another process is opened.
CONNECTING = {
    "ClientSession",
    "create_connection",
    "create_unix_connection",
    "open_connection",
    "open_unix_connection",
    "sock_connect",
}
MAY_CONNECT = {"upstream", "stores", "demo"}

# All that http/ and policy/ may use: nothing here has a clock, dice, a file or a socket.
PURE = {
    "abc", "bisect", "collections", "dataclasses", "enum", "fractions", "functools", "hashlib",
    "heapq", "http", "ipaddress", "itertools", "math", "operator", "re", "string", "typing",
}  # fmt: skip
PURE_PACKAGES = {"http", "policy"}

FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for file in FILES
}
MOST_FILES = 15


def place_of(name: str) -> tuple[str, str]:
    """Package and part: ``("policy", "retry")`` for ``proxy.policy.retry.verdict.decide``."""
    package, part = [*name.split(".")[1:3], "__init__", "__init__"][:2]
    if package not in ARROWS:
        return "__init__", "__init__"
    is_module = f"proxy.{package}.{part}" in MODULES
    return package, part if is_module else "__init__"


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)


def imported(tree: ast.Module, module: str) -> Iterator[str]:
    """Full names of all that *module* imports, wherever in the file it does so.

    ``from a import b`` counts as ``a.b``, be b a module or a name in one.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def breach_of(module: str, name: str) -> str | None:
    """The arrow against which *module* imports *name* of ours; None if there is none."""
    package, part = module.split(".")[1], [*module.split("."), "__init__"][2]
    other, other_part = place_of(name)
    if other != package:
        return None if other in ARROWS[package] else f"{package} imports {other}"
    parts = PARTS.get(package)
    if parts is None or part == other_part:
        return None
    if part not in parts:
        return f"{package}/{part} is in no row of PARTS"
    return None if other_part in parts[part] else f"{package}/{part} imports {package}/{other_part}"


def breaches(source: str, module: str) -> list[str]:
    """What *module* does that its package may not."""
    tree = ast.parse(source)
    package = module.split(".")[1]
    if package not in ARROWS:
        return [f"{package} is in no row of ARROWS"]
    found = []
    for name in imported(tree, module):
        top = name.partition(".")[0]
        if top == "proxy":
            breach = breach_of(module, name)
            if breach is not None:
                found.append(breach)
            continue
        if top not in ONLY_IN and top not in sys.stdlib_module_names:
            found.append(f"{top} is in no row of ONLY_IN")
        if package in PURE_PACKAGES and top not in PURE:
            found.append(f"{package} imports {top}, which is not pure")
        found += [
            f"{package} imports {guarded}"
            for guarded, packages in ONLY_IN.items()
            if (name == guarded or name.startswith(f"{guarded}.")) and package not in packages
        ]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if package not in MAY_CONNECT:
        found += [f"{package} opens connections with {name}" for name in names & CONNECTING]
    return sorted(set(found))


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_imports_follow_the_arrows(file: Path) -> None:
    assert not breaches(file.read_text(encoding="utf-8"), module_of(file))


def circle_in(arrows: Mapping[str, Iterable[str]]) -> set[str]:
    """What is left when all that points only to what is settled has been taken away."""
    settled: set[str] = set()
    waiting = {name: set(others) for name, others in arrows.items()}
    while free := {name for name, others in waiting.items() if others <= settled}:
        settled |= free
        waiting = {name: others for name, others in waiting.items() if name not in free}
    return set(waiting)


def test_no_arrow_leads_back() -> None:
    assert not circle_in(ARROWS)
    for parts in PARTS.values():
        assert not circle_in(parts)


def test_every_row_is_of_something_that_exists() -> None:
    assert {place_of(module)[0] for module in MODULES} | {"__init__"} == set(ARROWS)
    for package, parts in PARTS.items():
        assert {place_of(m)[1] for m in MODULES if m.startswith(f"proxy.{package}")} == set(parts)


def type_checking(tree: ast.Module) -> list[ast.If]:
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    ]


def test_no_import_for_types_alone_hides_a_circle_between_packages() -> None:
    """Within a package one module may have such a block, which begins with its reason."""
    seen: dict[str, str] = {}
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        for block in type_checking(ast.parse(text)):
            package = module_of(file).split(".")[1]
            names = imported(ast.Module(list(block.body), []), module_of(file))
            assert {place_of(name)[0] for name in names} == {package}, file
            assert package not in seen, f"{file} and {seen[package]}"
            seen[package] = str(file)
            reason = text.splitlines()[block.lineno].strip()
            assert reason.startswith("#"), f"{file}: say why, in the first line of the block"


@pytest.mark.parametrize(
    "folder", sorted({file.parent for file in FILES}), ids=lambda folder: folder.name
)
def test_folders_can_be_looked_through(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= MOST_FILES
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "say in a paragraph what lives here"


@pytest.mark.parametrize(
    ("module", "source", "breach"),
    [
        pytest.param("proxy.policy.x", "import re", None, id="policy may use pure modules"),
        pytest.param(
            "proxy.policy.x", "from time import time", "policy imports time", id="but no clock"
        ),
        pytest.param(
            "proxy.http.x", "import asyncio", "http imports asyncio, which", id="nor asyncio"
        ),
        pytest.param("proxy.core.x", "from proxy import app", "core imports app", id="no way up"),
        pytest.param(
            "proxy.server.x",
            "from ..config import y",
            "server imports config",
            id="by a relative name",
        ),
        pytest.param(
            "proxy.server.x",
            "def f():\n    import proxy.observe.metrics",
            "server imports observe",
            id="within a function",
        ),
        pytest.param(
            "proxy.server.x",
            "from proxy.pipeline import build",
            "server imports pipeline",
            id="stages are handed to the server",
        ),
        pytest.param("proxy.server.x", "from .body import y", None, id="a package knows itself"),
        pytest.param(
            "proxy.policy.retry.x",
            "from proxy.policy.throttle.gcra import Gcra",
            "policy/retry imports policy/throttle",
            id="but not every part of itself",
        ),
        pytest.param(
            "proxy.policy.retry.x",
            "from proxy.policy.settings import Backoff",
            None,
            id="only what its row names",
        ),
        pytest.param(
            "proxy.config.diagnostics.x",
            "from proxy.config import schema",
            "config/diagnostics imports config/schema",
            id="a leaf within a package",
        ),
        pytest.param(
            "proxy.policy.attic",
            "from proxy.policy import window",
            "policy/attic is in no row",
            id="a part without a row",
        ),
        pytest.param(
            "proxy.server.x", "import httptools", "server imports httptools", id="a guarded library"
        ),
        pytest.param("proxy.app.x", "import requests", "requests is in no row", id="a new library"),
        pytest.param(
            "proxy.app.x",
            "from http import client",
            "app imports http.client",
            id="a module of one",
        ),
        pytest.param("proxy.app.x", "from http import HTTPStatus", None, id="its harmless sibling"),
        pytest.param(
            "proxy.http.x",
            "from http import HTTPStatus",
            None,
            id="our http is not the standard library's",
        ),
        pytest.param(
            "proxy.http.x",
            "from proxy.policy import window",
            "http imports policy",
            id="and it is a leaf",
        ),
        pytest.param(
            "proxy.pipeline.x",
            "loop.create_connection(f)",
            "pipeline opens connections with create_connection",
            id="a connection behind upstream's back",
        ),
        pytest.param("proxy.attic.x", "", "attic is in no row", id="a package without a row"),
        pytest.param(
            "proxy.app.x", "from proxy import __version__", None, id="app knows the version"
        ),
        pytest.param(
            "proxy.policy.x", "import proxy", "policy imports __init__", id="but policy does not"
        ),
    ],
)
def test_the_rules_bite(module: str, source: str, breach: str | None) -> None:
    found = breaches(source, module)
    assert (breach is None) == (not found)
    assert breach is None or breach in found[0]
