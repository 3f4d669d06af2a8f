"""One address in ``pyproject.toml``, from which all others follow."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.release.addresses import (
    ROOT,
    home,
    is_placeholder,
    own_addresses,
    strangers,
    written_files,
)

NAME = "holdfast"
"""Addresses below are put together: written out, they would be found in this very file."""


def urls() -> dict[str, str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found = tomllib.load(file)["project"]["urls"]
    assert isinstance(found, dict)
    return found


def test_all_that_users_look_for_has_an_address_below_the_projects_home() -> None:
    assert set(urls()) == {
        "Homepage",
        "Documentation",
        "Source",
        "Issues",
        "Changelog",
        "Security",
    }
    assert home().startswith("https://")
    assert not home().endswith("/")
    for name, address in urls().items():
        assert address == home() or address.startswith(f"{home()}/"), name


def test_no_other_address_of_the_projects_own_is_written_anywhere() -> None:
    assert list(strangers(ROOT)) == []


def test_every_file_that_somebody_wrote_is_looked_at() -> None:
    names = {str(path.relative_to(ROOT)) for path in written_files(ROOT)}
    assert {
        ".github/ISSUE_TEMPLATE/config.yml",
        "Dockerfile",
        "README.md",
        "SECURITY.md",
        "config/schema.json",
        "docs/architecture.md",
        "proxy/__init__.py",
    } <= names
    assert not any(name.startswith((".venv", ".git/")) for name in names)


@pytest.mark.parametrize(
    "address",
    [
        f"https://{NAME}.dev/docs",
        f"https://docs.{NAME}.example/",
        f"https://{NAME}.readthedocs.io",
        f"https://github.com/somebody/{NAME}/issues",
        f"{NAME}.io",
        f"security@{NAME}.org",
    ],
)
def test_an_address_that_does_not_follow_is_found(tmp_path: Path, address: str) -> None:
    base = f"https://{NAME}.example"
    (tmp_path / "pyproject.toml").write_text(f'[project.urls]\nHomepage = "{base}"\n')
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"See [it]({address}), <{base}> and `{base}/issues`.\n")
    assert list(strangers(tmp_path)) == [(Path("docs/page.md"), address)]


@pytest.mark.parametrize(
    "text",
    [
        "curl http://holdfast:8080/v1",
        "http://holdfast.payments.svc:9901/metrics",
        "https://payments.example/holdfast",
        "unix:/run/holdfast.sock, holdfast.yaml, holdfast.service, holdfast.json",
        "https://json-schema.org/draft/2020-12/schema",
        "http://127.0.0.1:8080/holdfast",
        "http://[::1/holdfast",
    ],
)
def test_addresses_of_users_and_names_of_files_are_none_of_the_projects(text: str) -> None:
    assert list(own_addresses(text)) == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (f"https://{NAME}.example", True),
        (f"https://forge.example/x/{NAME}", True),
        (f"https://forge.com/x/{NAME}", False),
    ],
)
def test_an_address_that_nobody_can_have_is_a_placeholder(address: str, *, expected: bool) -> None:
    assert is_placeholder(address) is expected


def test_addresses_of_files_lead_to_files() -> None:
    pattern = re.compile(re.escape(home()) + r"/(?:blob|raw|tree)/main/([^\s\"'<>`)#]+)")
    named = {
        found
        for path in written_files(ROOT)
        if path.suffix in {".md", ".toml", ".yml", ".yaml", ".json", ""}
        for found in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert "CHANGELOG.md" in named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_labels_of_the_image_are_the_same_addresses() -> None:
    text = (ROOT / "Dockerfile").read_text()
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', text))
    assert labels["source"] == urls()["Source"]
    assert labels["documentation"] == urls()["Documentation"]
