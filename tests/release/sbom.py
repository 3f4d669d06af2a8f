"""The bill of materials of a release, in CycloneDX: what is in the image besides Python itself.

``make sbom`` installs ``requirements.lock`` into an environment of its own and writes down what is
there: each package with its version, its licence and what it depends on. The same commit gives the
same file, but for packages that only some platforms or Pythons need.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import proxy

ROOT = Path(__file__).parent.parent.parent
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def environment(folder: Path) -> Path:
    """Install what the lock has into a new environment in *folder*; return its interpreter."""
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(make, check=True)
    python = folder / "bin" / "python"
    wanted = ("--require-hashes", "--requirement", str(ROOT / "requirements.lock"))
    install = [*PIP, "--python", str(python), "install", "--quiet", *wanted]
    subprocess.run(install, check=True)
    return python


def write(python: Path, target: Path, scratch: Path, *, created: int | None) -> None:
    """Write to *target* what is installed for *python*, as parts of this version of Holdfast."""
    metadata = scratch / "pyproject.toml"
    metadata.write_text(_with_version((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *(str(Path(sys.executable).parent / "cyclonedx-py"), "environment"),
            *("--pyproject", str(metadata), "--mc-type", "application"),
            *("--output-reproducible", "--output-format", "JSON", "--output-file", str(target)),
            str(python),
        ],
        check=True,
        env={
            **os.environ,
            **({} if created is None else {"SOURCE_DATE_EPOCH": str(created)}),
        },
    )


def _with_version(pyproject: str) -> str:
    """Return *pyproject* with the version that is otherwise only known when a wheel is built."""
    given = pyproject.replace(
        'dynamic = ["readme", "version"]', f'dynamic = ["readme"]\nversion = "{proxy.__version__}"'
    )
    if tomllib.loads(given)["project"].get("version") != proxy.__version__:
        raise ValueError("pyproject.toml says otherwise where its version comes from")
    return given


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bill of materials."""
    parser = argparse.ArgumentParser(prog="python -m tests.release.sbom", description=main.__doc__)
    parser.add_argument("--created", type=int, help="seconds since 1970, such as the commit's")
    default = ROOT / "dist" / f"holdfast-{proxy.__version__}.cdx.json"
    parser.add_argument("target", type=Path, nargs="?", default=default)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = environment(folder / "environment")
        write(python, options.target, folder, created=options.created)
    sys.stdout.write(f"{options.target} is written\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
