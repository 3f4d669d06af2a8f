"""The bill of materials of what the lock has."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import proxy
from tests.release.lock import pins
from tests.release.sbom import ROOT, write

pytestmark = pytest.mark.deep  # the tool alone works for five seconds


def environment(folder: Path) -> Path:
    """An environment that says that it has what the lock has: what is installed here."""
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(make, check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    locked = {pin.name for pin in pins((ROOT / "requirements.lock").read_text())}
    for described in Path(pytest.__file__).parent.parent.glob("*.dist-info"):
        if described.name.partition("-")[0].lower().replace("_", "-") in locked:
            shutil.copytree(described, packages / described.name)
    return folder / "bin" / "python"


def test_the_bill_names_this_version_and_each_package_that_it_depends_on(tmp_path: Path) -> None:
    target = tmp_path / "dist" / "holdfast.cdx.json"
    python = environment(tmp_path / "environment")
    write(python, target, tmp_path, created=1_800_000_000)
    bill = json.loads(target.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"], root["type"]) == (
        "holdfast",
        proxy.__version__,
        "application",
    )
    assert bill["metadata"]["timestamp"] == "2027-01-15T08:00:00+00:00"
    packages = {one["name"].lower(): one for one in bill["components"]}
    assert packages["aiohttp"]["version"] == version("aiohttp")
    assert packages["aiohttp"]["purl"] == f"pkg:pypi/aiohttp@{version('aiohttp')}"
    assert packages["aiohttp"]["licenses"]
    (direct,) = [one for one in bill["dependencies"] if one["ref"] == root["bom-ref"]]
    names = {one.partition("==")[0].lower() for one in direct["dependsOn"]}
    assert names == {"aiohttp", "click", "hiredis", "httptools", "pyyaml", "rich", "uvloop"}
    assert str(ROOT) not in target.read_text(), "a path of this machine"
