"""What is in the wheel and in the source distribution, and what the package's page says."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import proxy
from tests.docs.kit.blocks import links
from tests.release.addresses import ROOT, home
from tests.release.lock import pins

NAME = f"holdfast-{proxy.__version__}"
DIST_INFO = f"{NAME}.dist-info"


def build(root: Path, target: str, folder: Path) -> Path:
    """Build it as ``make dist`` does."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target]
    subprocess.run(
        [*command, "--directory", str(folder)], cwd=root, check=True, capture_output=True
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    packed = build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


def files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_string(archive.read(f"{DIST_INFO}/METADATA").decode())


# The wheel.


def test_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if not name.startswith(DIST_INFO)}
    assert package == {f"proxy/{name}" for name in files(ROOT / "proxy")}
    assert "proxy/py.typed" in package, "the classifier Typing :: Typed says so"
    assert names - package == {
        f"{DIST_INFO}/{name}"
        for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }


def test_wheel_has_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entry_points = archive.read(f"{DIST_INFO}/entry_points.txt").decode()
    assert entry_points == "[console_scripts]\nholdfast = proxy.__main__:main\n"


def test_wheel_says_what_it_is(wheel: Path) -> None:
    told = metadata(wheel)
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    assert told["Name"] == "holdfast"
    assert told["Version"] == proxy.__version__
    assert told["License-Expression"] == "Apache-2.0"
    assert told["License-File"] == "LICENSE"
    assert told["Author"] == "The Holdfast maintainers"
    assert told["Requires-Python"] == ">=3.11"
    addresses = [one.split(", ") for one in told.get_all("Project-URL", [])]
    assert dict(addresses) == project["urls"]
    required = [one for one in told.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert len(required) == len(project["dependencies"])


def test_the_packages_page_is_the_readme_and_has_no_dead_link(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Description-Content-Type"] == "text/markdown"
    page = told.get_payload()
    assert isinstance(page, str)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.splitlines()[0] == readme.splitlines()[0] == "# Holdfast"
    assert len(links(page)) == len(links(readme)) > 10
    tagged = f"{home()}/blob/v{proxy.__version__}/"
    pictures = f"{home()}/raw/v{proxy.__version__}/"
    for link in links(page):
        assert re.match(r"https?://", link), f"{link} leads nowhere from the package's page"
        if link.startswith(home()):
            assert link.startswith((tagged, pictures)), link
            path = link.removeprefix(tagged).removeprefix(pictures).partition("#")[0]
            assert (ROOT / path).exists(), link
    assert not re.search(r"""\b(?:src|href)=["'](?!https?:)""", page)


def test_an_editable_install_needs_nothing_but_the_build_backend(tmp_path: Path) -> None:
    locked = {pin.name for pin in pins((ROOT / "requirements-dev.lock").read_text())}
    assert "hatchling" in locked
    assert "editables" not in locked, "then it would not be needed here, either"
    editable = build(ROOT, "wheel:editable", tmp_path)
    with zipfile.ZipFile(editable) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".pth")]
        assert archive.read(path).decode().strip() == str(ROOT)


# The source distribution.


def test_source_distribution_holds_all_that_is_in_the_repository(unpacked: Path) -> None:
    assert unpacked.name == NAME
    if not (ROOT / ".git").exists():
        pytest.skip("this is no repository: there is nothing to compare with")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout
    kept = {name for name in os.fsdecode(found).split("\0") if name and (ROOT / name).is_file()}
    assert files(unpacked) - {"PKG-INFO"} == kept


def test_source_distribution_has_nothing_that_was_made(unpacked: Path) -> None:
    top = {path.name for path in unpacked.iterdir()}
    assert not top & {".git", ".venv", "build", "dist", "mutants", "state", ".pytest_cache"}
    assert not any("__pycache__" in path.parts for path in unpacked.rglob("*"))
    results = {path.name for path in (unpacked / "bench" / "results").iterdir()}
    assert results == {"published.json", "published.md"}


def test_source_distribution_holds_all_that_its_pages_link_to(unpacked: Path) -> None:
    pages = [*unpacked.glob("*.md"), *unpacked.glob("docs/**/*.md")]
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/decisions/README.md"):
        assert unpacked / name in pages
    for page in pages:
        for link in links(page.read_text(encoding="utf-8")):
            if "://" not in link:
                assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def test_a_wheel_from_the_source_distribution_is_the_same(
    unpacked: Path, wheel: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(unpacked, source)
    again = build(source, "wheel", tmp_path / "dist")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }
