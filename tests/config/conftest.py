from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import trustme

from proxy.config import ConfigError, Loaded, load
from tests.support.disks import lasting_disk  # noqa: F401 - a fixture for all tests here

Lines = Callable[..., list[str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, so that messages show short names of files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loaded(folder: Path) -> Callable[..., Loaded]:
    """Load the text of one file."""

    def load_text(text: str, environ: Mapping[str, str] | None = None) -> Loaded:
        (folder / "holdfast.yaml").write_bytes(text.encode())
        return load(["holdfast.yaml"], environ or {})

    return load_text


@pytest.fixture
def lines(loaded: Callable[..., Loaded]) -> Lines:
    """Return what `holdfast check` prints for the text of one file, without the summary."""

    def lines_of(text: str, environ: Mapping[str, str] | None = None) -> list[str]:
        try:
            report = loaded(text, environ).report
        except ConfigError as error:
            report = error.report
        return [str(fault) for fault in report.diagnostics]

    return lines_of


@pytest.fixture
def only_line(lines: Lines) -> Callable[..., None]:
    """Assert that a file gets exactly one message, at the position marked with » in it."""

    def assert_only_line(
        marked: str, expected: str, environ: Mapping[str, str] | None = None
    ) -> None:
        before, mark, _ = marked.partition("»")
        assert mark, "no place is marked"
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        found = lines(marked.replace("»", ""), environ)
        assert found == [f"holdfast.yaml:{line}:{column}: {expected}"]

    return assert_only_line


@pytest.fixture
def certificates(folder: Path) -> Path:
    """``ca.pem``; a certificate and key each of ``one`` and ``two``; both in ``both.pem``."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name in ("one", "two"):
        issued = authority.issue_cert(f"{name}.example")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        issued.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    (folder / "text").write_text("hello")
    return folder
