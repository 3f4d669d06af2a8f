"""Every generated file, made from its source: ``make generate`` writes it, ``make check`` compares.

==============================  ===================================================
file                            made from
==============================  ===================================================
``config/schema.json``          what ``holdfast schema`` prints
``README.md``, tables of keys   the sections of the configuration (``readme/tables.py``)
``README.md``, metrics          the table of metrics (``readme/metrics_table.py``)
``README.md``, performance      ``bench/results/published.json`` (``bench/readme.py``)
``bench/results/published.md``  the same
``docs/architecture.md``        the docstring of the exchange (``docs/exchange_table.py``)
==============================  ===================================================

A new generator gets a line in :func:`generated`, and one in this table.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner

from bench.readme import with_section
from bench.report import markdown
from bench.results import read
from proxy.cli import main as holdfast
from tests.docs.exchange_table import with_exchange_table
from tests.readme.metrics_table import with_metrics
from tests.readme.tables import with_tables

ROOT = Path(__file__).parent.parent


def generated(root: Path) -> dict[Path, str]:
    """What each generated file under *root* should hold."""
    readme, results = root / "README.md", root / "bench" / "results"
    architecture = root / "docs" / "architecture.md"
    run = read(results / "published.json")
    return {
        root / "config" / "schema.json": _schema(),
        readme: with_section(with_metrics(with_tables(readme.read_text(encoding="utf-8"))), run),
        results / "published.md": markdown(run),
        architecture: with_exchange_table(architecture.read_text(encoding="utf-8")),
    }


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
