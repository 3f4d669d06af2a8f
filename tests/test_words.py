"""One word, one meaning: names that are defined once, and docstrings that stand alone.

``docs/glossary.md`` has the words; here is what a test can hold of them.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "proxy").rglob("*.py"))

# A docstring is read without the function above it: it names its subject, or begins with a verb.
LEANS_ON_ANOTHER = re.compile(
    r"(The same|It |Its |Nobody|Somebody|Whoever|Who |They |Them |Means |Likewise|Also )"
)

# Words of this project's first version, which no engineer from outside would search for, and the
# field's words instead of them.
RETIRED = {
    "estate": "generation",
    "surroundings": "services",
    "outbox": "write coalescer",
    "entrance": "throttle chain",
    "lookout": "disconnect watch",
    "hindrance": "throttle refusal",
    "withholder": "delayed relay",
    "crew": "worker pool",
    "dealer": "acceptor",
    "hatch": "fd sender",
    "dialling": "connect",
    "keeper": "capture",
    "fleet": "endpoints",
    "told": "reported",
    "untold": "unreported",
    "why": "reason",
    "room": "space, capacity or package",
    "rooms": "packages",
}


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def documented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name):
                yield name


@pytest.mark.parametrize("file", FILES, ids=named)
def test_docstrings_stand_alone(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    leaning = [
        f"line {line}: {text.splitlines()[0]}"
        for line, text in documented(tree)
        if LEANS_ON_ANOTHER.match(text)
    ]
    assert not leaning


@pytest.mark.parametrize("file", FILES, ids=named)
def test_names_are_the_fields(file: Path) -> None:
    words = {
        word
        for name in identifiers(ast.parse(file.read_text(encoding="utf-8")))
        for word in re.findall(r"[A-Z]?[a-z]+", name)
    }
    used = {word for word in words if word.lower() in RETIRED}
    assert not used, {word: RETIRED[word.lower()] for word in used}


def test_no_public_class_is_defined_twice() -> None:
    places = defaultdict(list)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(named(file))
    assert not {name: files for name, files in places.items() if len(files) > 1}


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ("rate limit", "proxy/policy/throttle"),
        ("load balancing", "proxy/upstream/load_balancing.py"),
        ("back-pressure", "proxy/server"),
        ("connection pool", "proxy/upstream/pool.py"),
        ("graceful", "proxy/app/lifecycle.py"),
        ("heartbeat", "proxy/stores/redis"),
    ],
)
def test_what_is_searched_for_is_found_where_it_is(words: str, where: str) -> None:
    place = ROOT / where
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    text = " ".join(" ".join(file.read_text(encoding="utf-8") for file in files).split())
    assert words in text.lower()
