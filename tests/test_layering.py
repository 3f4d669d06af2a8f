"""Who may know whom: the arrows of the layout, read off the imports.

Below ``proxy/`` each folder, and each file beside them, is a room. A room may
import itself and what its row names. Nothing points back up.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "proxy"

ARROWS: dict[str, set[str]] = {
    "__init__": set(),  # the version, and the tale of a request
    "policy": set(),
    "core": {"policy"},
    "outbox": set(),  # a leaf: both sides write through it
    "sockets": {"policy"},  # both listeners make room for theirs and name them by it
    "unsent": set(),  # a leaf: all sides tell the slow from the silent by it
    "upstream": {"core", "outbox", "policy", "unsent"},
    "stores": {"core", "policy", "unsent"},
    "pipeline": {"core", "policy", "stores", "upstream"},
    "server": {"core", "outbox", "policy", "pipeline", "sockets", "unsent"},
    # What serves a configuration, for app to put in force:
    "estate": {"core", "outbox", "pipeline", "policy", "upstream"},
    # Dead letters are sent again through both ends of the house:
    "replays": {"core", "pipeline", "policy", "server", "stores"},
    # Known to app, and to workers, which show several apps as one; but for the commands that only
    # read a file:
    "config": {"policy"},
    "observe": {"core", "policy"},
    "admin": {"core", "policy", "sockets"},
    # Wires all of the above:
    "app": {
        "__init__",
        "policy",
        "core",
        "generation",
        "coalescer",
        "pipeline",
        "replays",
        "server",
        "config",
        "observe",
        "admin",
        "stores",
    },
    # Several processes that serve as one, each of them an app:
    "workers": {"__init__", "admin", "app", "config", "core", "observe", "policy", "sockets"},
    "cli": {"__init__", "app", "config", "core", "policy", "workers"},
    "__main__": {"cli"},
    "demo": set(),  # a world of its own: it only starts the command
}

# Where to find each thing from outside; what is not listed must be in the
# standard library.
ONLY_IN: dict[str, set[str]] = {
    "aiohttp": {"server", "admin", "demo"},
    "httptools": {"upstream"},
    "hiredis": {"stores"},
    "uvloop": {"cli"},
    "yaml": {"config", "demo"},
    "pydantic": {"config"},
    "pydantic_core": {"config"},
    "annotated_types": {"config"},  # comes with pydantic
    "prometheus_client": {"observe"},
    "click": {"cli"},
    "rich": {"cli"},
    # Time and chance come from core's Clock, so that tests can say what they
    # are. The server dates its answers and observe writes time stamps.
    "time": {"core", "server", "observe", "demo"},
    "random": {"core", "demo"},
    # Commands talk to the admin listener; requests go out through upstream/.
    "http.client": {"cli"},
    # Whatever may wait for a disk does so in a thread of its own.
    "sqlite3": {"stores"},
    "threading": {"stores", "observe"},
    "queue": {"stores", "observe"},
    "urllib.request": set(),
}

# Names by which a connection to somebody else is opened.
DIALLING = {
    "ClientSession",
    "create_connection",
    "create_unix_connection",
    "open_connection",
    "open_unix_connection",
    "sock_connect",
}
MAY_DIAL = {"upstream", "stores", "demo"}

# All that policy/ may use: nothing here has a clock, dice, a file or a socket.
PURE = {
    "abc", "bisect", "collections", "dataclasses", "enum", "fractions", "functools", "hashlib",
    "heapq", "http", "ipaddress", "itertools", "math", "operator", "re", "string", "typing",
}  # fmt: skip

FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(name: str) -> str:
    """``server`` for ``proxy.server.body.streaming``; ``__init__`` for ``proxy.__version__``."""
    room = f"{name}.__init__".split(".")[1]
    return room if room in ARROWS else "__init__"


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


def breaches(source: str, module: str) -> list[str]:
    """What *module* does that its room may not."""
    tree = ast.parse(source)
    room = module.split(".")[1]
    if room not in ARROWS:
        return [f"{room} is in no row of ARROWS"]
    found = []
    for name in imported(tree, module):
        top = name.partition(".")[0]
        if top == "proxy":
            other = room_of(name)
            if other not in {room, *ARROWS[room]}:
                found.append(f"{room} imports {other}")
            continue
        if top not in ONLY_IN and top not in sys.stdlib_module_names:
            found.append(f"{top} is in no row of ONLY_IN")
        if room == "policy" and top not in PURE:
            found.append(f"policy imports {top}, which is not pure")
        found += [
            f"{room} imports {guarded}"
            for guarded, rooms in ONLY_IN.items()
            if (name == guarded or name.startswith(f"{guarded}.")) and room not in rooms
        ]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if room not in MAY_DIAL:
        found += [f"{room} opens connections with {name}" for name in names & DIALLING]
    return sorted(set(found))


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_imports_follow_the_arrows(file: Path) -> None:
    assert not breaches(file.read_text(encoding="utf-8"), module_of(file))


def test_no_arrow_leads_back() -> None:
    settled: set[str] = set()
    waiting = dict(ARROWS)
    while waiting:
        free = {room for room, arrows in waiting.items() if arrows <= settled}
        assert free, f"a circle among {sorted(waiting)}"
        settled |= free
        for room in free:
            del waiting[room]


@pytest.mark.parametrize(
    ("module", "source", "breach"),
    [
        pytest.param("proxy.policy.x", "import re", None, id="policy may use pure modules"),
        pytest.param(
            "proxy.policy.x", "from time import time", "policy imports time", id="but no clock"
        ),
        pytest.param(
            "proxy.policy.x", "import asyncio", "policy imports asyncio, which", id="nor asyncio"
        ),
        pytest.param(
            "proxy.core.ports", "from proxy import app", "core imports app", id="no way up"
        ),
        pytest.param(
            "proxy.server.x",
            "from ..config import y",
            "server imports config",
            id="by a relative name",
        ),
        pytest.param(
            "proxy.server.x",
            "def f():\n    import proxy.observe.metrics.recorders",
            "server imports observe",
            id="within a function",
        ),
        pytest.param("proxy.server.x", "from .body import y", None, id="a room knows itself"),
        pytest.param(
            "proxy.server.x", "import httptools", "server imports httptools", id="a guarded library"
        ),
        pytest.param(
            "proxy.app.lifecycle", "import requests", "requests is in no row", id="a new library"
        ),
        pytest.param(
            "proxy.app.lifecycle",
            "from http import client",
            "app imports http.client",
            id="a module of one",
        ),
        pytest.param(
            "proxy.app.lifecycle", "from http import HTTPStatus", None, id="its harmless sibling"
        ),
        pytest.param(
            "proxy.pipeline.x",
            "loop.create_connection(f)",
            "pipeline opens connections with create_connection",
            id="a connection behind upstream's back",
        ),
        pytest.param("proxy.attic.x", "", "attic is in no row", id="a room without a row"),
        pytest.param(
            "proxy.app.lifecycle", "from proxy import __version__", None, id="app knows the version"
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
