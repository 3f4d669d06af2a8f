"""Every generated file, made from its source: ``make generate`` writes it, ``make check`` compares.

=========================================  ======================================================
file                                       made from
=========================================  ======================================================
``config/schema.json``                     what ``holdfast schema`` prints
``docs/reference/configuration.md``        the sections of the configuration (``key_tables.py``)
``docs/reference/metrics.md``              the table of metrics (``metrics_table.py``)
``docs/reference/command-line.md``         the declarations of commands (``command_line.py``)
``docs/explanation/performance.md``        ``bench/results/published.json`` (``bench/publish.py``)
``README.md``, three ratios                the same
``bench/results/published.md``             the same
``docs/architecture.md``                   the docstring of the exchange
                                           (``exchange_table.py``)
=========================================  ======================================================

Modules without a folder are in ``tests/docs/generated/``. A new generator gets a line in
:func:`generated`, and one in this table.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from click.testing import CliRunner

from bench.publish import with_ratios, with_section
from bench.report import markdown
from bench.results import read
from proxy.cli import main as holdfast
from tests.docs.generated.command_line import with_commands
from tests.docs.generated.exchange_table import with_exchange_table
from tests.docs.generated.key_tables import with_tables
from tests.docs.generated.metrics_table import with_metrics

ROOT = Path(__file__).parent.parent


def generated(root: Path) -> dict[Path, str]:
    """What each generated file under *root* should hold."""
    results = root / "bench" / "results"
    run = read(results / "published.json")
    pages: dict[str, Callable[[str], str]] = {
        "README.md": lambda text: with_ratios(text, run),
        "docs/architecture.md": with_exchange_table,
        "docs/explanation/performance.md": lambda text: with_section(text, run),
        "docs/reference/command-line.md": with_commands,
        "docs/reference/configuration.md": with_tables,
        "docs/reference/metrics.md": with_metrics,
    }
    made = {
        root / "config" / "schema.json": _schema(),
        results / "published.md": markdown(run),
    }
    for name, rewritten in pages.items():
        made[root / name] = rewritten((root / name).read_text(encoding="utf-8"))
    return made


def stale(root: Path) -> dict[Path, str]:
    """The files under *root* that hold something else, each with what it should hold."""
    return {
        path: text
        for path, text in generated(root).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def _schema() -> str:
    return CliRunner().invoke(holdfast, ["schema"], catch_exceptions=False).output


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the generated files that are stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.generate", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="only name them: change nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout (default: this one)")
    options = parser.parse_args(arguments)
    found = stale(options.root)
    for path, text in found.items():
        name = path.relative_to(options.root)
        if options.check:
            sys.stderr.write(f"{name} is stale: run make generate\n")
        else:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{name} is written\n")
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main())
