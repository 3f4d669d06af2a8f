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

# What a user reads (answers, logs, messages, help) says it in the plain word, without a riddle.
PLAIN = {
    "nobody": "no caller, no request, or unknown",
    "somebody": "a person",
    "everybody": "all callers",
    "whoever": "the caller, the instance",
    "be had": "available",
    "out of reach": "unavailable",
    "within reach": "available",
    "left alone": "gets no requests, is paused",
    "makes no sense": "is invalid",
    "in line": "in the queue",
    "gone for good": "deleted",
    "be it": "even if",
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


def read_by_users(tree: ast.Module) -> Iterator[str]:
    """Each text in the code that is no documentation, and that of commands, which is their help."""
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            re.search(r"command|group", ast.unparse(decorator)) for decorator in node.decorator_list
        ):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.Constant) and id(node) not in documentation:
            yield node.value if isinstance(node.value, str) else ""


@pytest.mark.parametrize("file", FILES, ids=named)
def test_what_users_read_is_in_plain_words(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    riddles = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)
    found = [text for text in read_by_users(tree) if riddles.search(text)]
    assert not found, {
        word: PLAIN[word.lower()] for text in found for word in riddles.findall(text)
    }


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
