"""``make mutants``: small changes of ``policy/`` and ``pipeline/`` that no test notices.

mutmut writes a copy of the code into ``mutants/`` with thousands of changes in it, each switched
off: ``<`` for ``<=``, ``and`` for ``or``, one more, None. mypy rejects about half of them. Then it
switches on one at a time and runs the tests that reach the changed function. A change that all of
them pass has *survived*: perhaps a test is missing. It may also make no difference, or only to
speed or to a text; and what runs while a module is imported runs before any change is switched on,
so that changes there always survive.

The tests are those of both packages that are quick: pyproject.toml says which. A survivor in
``pipeline/`` may be noticed by one that is not: with a real store, several processes, or many of
the examples in ``tests/faults/``. Look there before writing another.

A run ends when its time is up; changes with quick tests come first. The next run goes on from
there, and tries again only what is named (``ONLY``) or was changed. ``make clean`` makes it begin
anew.
"""

import argparse
import ast
import difflib
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
WORK = "mutants"
"""mutmut's folder, below the root of the project."""
_TIME_TO_STOP = 60.0
"""Seconds that mutmut gets to end its workers and write down what it found."""

_a_result = re.compile(r"\s*(?P<mutant>\S+): (?P<status>.+)").fullmatch
# proxy.policy.window.xǁWindowǁadd__mutmut_1, or proxy.policy.attempt.x_outcome_label__mutmut_1
_a_mutant = re.compile(
    r"(?P<module>.+)\.(?P<function>x(?:_|ǁ(?P<class>\w+)ǁ)(?P<name>\w+?)__mutmut_)(?P<number>\d+)"
).fullmatch


class Mutant(NamedTuple):
    """One change, as it was generated."""

    file: str
    """Path of the source, below the root."""
    function: str
    """The changed function as one writes it: ``Window.add``."""
    original: str
    """Name of the unchanged function in mutmut's copy."""
    changed: str
    """Name of the changed one."""


def read_mutant(name: str, root: Path) -> Mutant:
    """Parse the *name* that mutmut gave to a change of a file under *root*."""
    found = _a_mutant(name)
    if found is None:
        raise ValueError(f"not a name of mutmut's: {name}")
    file = f"{found['module'].replace('.', '/')}.py"
    if not (root / file).exists():
        file = f"{file.removesuffix('.py')}/__init__.py"
    function = f"{found['class']}.{found['name']}" if found["class"] else found["name"]
    return Mutant(
        file, function, f"{found['function']}orig", f"{found['function']}{found['number']}"
    )


class Sources:
    """The functions of the files under one folder, parsed once each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, dict[str, tuple[int, list[str]]]] = {}

    def function(self, file: str, name: str) -> tuple[int, list[str]]:
        """Return the number of the first line of a function or ``Class.method``, and its lines."""
        if file not in self._files:
            text = (self._root / file).read_text(encoding="utf-8")
            self._files[file] = dict(_functions(ast.parse(text), text.splitlines()))
        return self._files[file][name]


def _functions(
    node: ast.Module | ast.ClassDef, lines: list[str], prefix: str = ""
) -> Iterator[tuple[str, tuple[int, list[str]]]]:
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, lines, f"{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            found = child.lineno, lines[child.lineno - 1 : child.end_lineno]
            yield f"{prefix}{child.name}", found


def describe(mutant: Mutant, sources: Sources, changed: Sources) -> list[str]:
    """Return where *mutant* is, and its changed lines before and after."""
    owner, _, _ = mutant.function.rpartition(".")
    prefix = f"{owner}." if owner else ""
    _, before = changed.function(mutant.file, prefix + mutant.original)
    _, after = changed.function(mutant.file, prefix + mutant.changed)
    after = [line.replace(mutant.changed, mutant.original) for line in after]
    first, _ = sources.function(mutant.file, mutant.function)
    lines = []
    at = 0
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for change, begin, end, new_begin, new_end in matcher.get_opcodes():
        if change != "equal":
            at = at or first + begin
            lines += [f"    - {line.strip()}" for line in before[begin:end]]
            lines += [f"    + {line.strip()}" for line in after[new_begin:new_end]]
    return [f"{mutant.file}:{at} {mutant.function}", *lines]


def report(results: str, root: Path) -> str:
    """Return the survivors of a run under *root*, from what ``mutmut results`` prints of it."""
    statuses: dict[str, list[str]] = defaultdict(list)
    for line in results.splitlines():
        if found := _a_result(line):
            statuses[found["status"]].append(found["mutant"])
    sources, changed = Sources(root), Sources(root / WORK)
    lines = []
    for name in statuses["survived"]:
        lines += [*describe(read_mutant(name, root), sources, changed), ""]
    untested = Counter(read_mutant(name, root)[:2] for name in statuses["no tests"])
    for (file, function), number in untested.items():
        lines.append(f"{file} {function}: no test reaches it, {number} mutants")
    counts = {status: len(names) for status, names in sorted(statuses.items()) if names}
    summary = ", ".join(f"{number} {status}" for status, number in counts.items())
    return "\n".join([*lines, f"{sum(counts.values())} mutants: {summary}"])


def run_for(seconds: float, command: Sequence[str]) -> int:
    """Run *command* for so long at most; return its exit status, 0 if it was interrupted."""
    # mypy, which mutmut calls by its name, is beside this Python.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "HOLDFAST_FUZZ": "mutants"}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass  # the terminal has told both
        try:
            process.wait(_TIME_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
        return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Try changes for some minutes, and print those that no test noticed."""
    parser = argparse.ArgumentParser(prog="make mutants", description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="changes that are tried at a time")
    parser.add_argument("only", nargs="*", help="patterns of names, such as 'proxy.policy.retry.*'")
    given = parser.parse_args(arguments)
    mutmut = str(Path(sys.executable).parent / "mutmut")
    run = [mutmut, "run", "--max-children", str(given.jobs), *given.only]
    if status := run_for(given.minutes * 60, run):
        return status
    results = subprocess.run(
        [mutmut, "results", "--all", "true"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    told = report(results.stdout, ROOT)
    (ROOT / WORK / "survivors.txt").write_text(f"{told}\n", encoding="utf-8")
    print(told)  # noqa: T201 - to the developer who asked for it
    return 0


if __name__ == "__main__":
    sys.exit(main())
