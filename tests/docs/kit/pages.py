"""The pages for users, and the conventions that let tests run every example in them.

Pages are ``README.md`` and ``docs/**/*.md``. What a fenced block says after its three backticks
decides what the tests do with it:

==================  ================================================================================
info string         what is tested
==================  ================================================================================
``yaml``            a complete configuration: it loads, without faults and without warnings
``yaml top``        some keys of the top of a file, loaded over a small base; upstreams that its
                    routes name, and routes to upstreams that it has, are added
``yaml route``      some keys of a route, loaded inside one (``match`` and ``upstream`` are added)
``yaml upstream``   some keys of an upstream, loaded inside one (``urls`` is added)
``yaml faulty``     a configuration with at least one fault or warning, as the text around it says
``yaml other``      not a file of Holdfast's: it is YAML, and nothing else is tested
``console``         ``$ command`` lines with the output of each; they are run, in the page's session
``json``            one JSON value per line
``json log``        lines that the session has printed: the access log, or the process log
``sh``              commands that cannot be run here (docker, kubectl, placeholders such as ``ID``):
                    the shell accepts them, and each ``holdfast`` command has these options
``python``          it compiles
``text``, others    nothing
==================  ================================================================================

Variables without a default (``${NAME}``) are set to ``secret``, and so is the content of files in
``/run/secrets/holdfast``, where the manifests mount them. Other files and certificates that a block
names must exist, so leave them out, or show them with ``yaml faulty``.

**Files.** A ``yaml`` block whose first line is ``# NAME.yaml`` is written to the session's folder
under that name, before the first command of the page runs. ``config/`` (demo and examples) is there
as well, as in a checkout. Numbers of ports are replaced in files, commands and outputs: write
``127.0.0.1:8080`` for the proxy, ``:9901`` for its admin listener, ``:9000`` for the upstream.

**Sessions.** A comment in the page says what runs beside its commands. It holds for the ``console``
blocks below it, up to the next one; without it nothing runs::

    <!-- session: demo -->              what `make demo` starts: the proxy with config/demo.yaml and
                                        its flaky upstream
    <!-- session: upstream -->          the flaky upstream alone, on port 9000
    <!-- session: upstream redis -->    and an empty Redis on port 6379
    <!-- session: upstream installed -> commands are those of a wheel in a new environment

A command that serves, ``holdfast run`` or one that ends with ``&``, is started and left running; it
counts as started when all lines that are shown below it have been printed (for ``holdfast run``
without any: when it listens). ``curl`` is a small stand-in (``curl.py``) that knows the options
that the pages use. It and the other commands of ``holdfast`` are called within the test, by
themselves or at the beginning of a pipe. ``redis-cli`` sends one command to the session's Redis,
which has 5 s to answer where a file says ``store: redis://127.0.0.1:6379``.

**Outputs** are compared whole, standard error included. A line ``…`` stands for any lines, none
included. Dates, ids, lengths and times may differ (``_MASKS`` in ``session.py``).

**Pages.** Each is reachable from ``docs/index.md``, has at most 2,500 words (generated tables do
not count), and its links and anchors exist
(``test_links.py``).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.docs.kit.blocks import links

ROOT = Path(__file__).parent.parent.parent.parent
INDEX = ROOT / "docs" / "index.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(
    r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$|^<!-- session: (?P<session>[^>]*) -->$",
    re.MULTILINE | re.DOTALL,
)
_GENERATED = re.compile(
    r"^<!-- (keys: \w+|metrics|commands|bench|ratios|exchange) -->\n.*?^<!-- end[\w ]* -->$",
    re.MULTILINE | re.DOTALL,
)


def name_of(page: Path) -> str:
    """The page, as seen from the top of the checkout."""
    return str(page.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    """What stands behind the language."""
    text: str
    session: str
    """What the nearest comment above it says, and how many were there before."""

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    @cached_property
    def file(self) -> str | None:
        """The name under which sessions have it."""
        named = re.match(r"# ([\w./-]+\.ya?ml)\n", self.text)
        return named[1] if named and self.language == "yaml" else None

    def steps(self) -> Iterator[tuple[str, str]]:
        """Each command of a console block, with the output that is shown for it."""
        for step in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = step.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command.removesuffix("\\") + more.removeprefix("> ").strip()
            yield command, output


def blocks_of(page: Path, text: str | None = None) -> list[Block]:
    """All fenced blocks of *page*, in their order."""
    text = page.read_text(encoding="utf-8") if text is None else text
    found, session, number = [], "", 0
    for fence in _FENCE.finditer(text):
        if fence["session"] is not None:
            number += 1
            session = f"{number}: {fence['session'].strip()}"
            continue
        language, *words = fence["info"].split() or ["text"]
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, language, tuple(words), fence["text"], session))
    return found


def blocks_in(*languages: str) -> list[Block]:
    """The blocks of all pages that are in one of *languages*."""
    return [block for page in PAGES for block in blocks_of(page) if block.language in languages]


def words_of(page: Path) -> int:
    """How many words there are to read; generated tables do not count."""
    return len(_GENERATED.sub("", page.read_text(encoding="utf-8")).split())


def pages_linked_from(page: Path) -> set[Path]:
    """The pages that *page* links to, wherever in it."""
    text = page.read_text(encoding="utf-8")
    targets = {
        (page.parent / link.partition("#")[0]).resolve()
        for link in links(text)
        if "://" not in link
    }
    return {target for target in targets if target.suffix == ".md" and target.is_file()}


def reachable_from(page: Path, clicks: int | None = None) -> set[Path]:
    """The pages that links lead to from *page*, with at most that many of them."""
    found, edge = {page}, {page}
    while edge and clicks != 0:
        edge = {linked for one in edge for linked in pages_linked_from(one)} - found
        found |= edge
        clicks = None if clicks is None else clicks - 1
    return found
