"""What ``make release-check`` refuses."""

import datetime as dt
import re
import subprocess
from pathlib import Path

import pytest

from bench.results import PUBLISHED
from tests.generate import generated
from tests.release.addresses import home, is_placeholder
from tests.release.check import (
    ROOT,
    address_faults,
    changelog_faults,
    git_faults,
    main,
    not_ready,
    version,
    version_faults,
)

TODAY = dt.date(2026, 11, 18)
NAME = "holdfast"
A_HOME = f"https://forge.com/x/{NAME}"


def git(folder: Path, *arguments: str) -> None:
    known = ("-c", "user.name=Somebody", "-c", "user.email=somebody@mail.example")
    unsigned = ("-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    command = ["git", *known, *unsigned, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--initial-branch", "main")
    (tmp_path / "file").write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "One")
    return tmp_path


# Here and now.


def test_a_placeholder_for_the_projects_home_is_refused() -> None:
    complaint = f"{home()} is a placeholder: write the repository's address into [project.urls]"
    assert (complaint in address_faults(ROOT)) is is_placeholder(home())


def test_a_checkout_that_is_ready_is_told_its_tag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    needed += [*generated(ROOT), PUBLISHED, ROOT / "proxy" / "__init__.py"]
    for path in needed:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        copy.write_text(text.replace(home(), A_HOME), encoding="utf-8")
    changelog = tmp_path / "CHANGELOG.md"
    name = version(tmp_path)
    changelog.write_text(f"# Changelog\n\n## [Unreleased]\n\n## [{name}] - 2026-11-18\n\nAll.\n")
    git(tmp_path, "init", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "All")

    # What is generated has the address of the code that runs, which is not the copy's.
    generated_here = {
        f"{path.relative_to(ROOT)} is stale: run make generate" for path in generated(ROOT)
    }
    assert set(not_ready(tmp_path, TODAY)) <= generated_here

    (tmp_path / "new").touch()
    assert main(["--root", str(tmp_path)]) == 1
    assert "not ready: there are changes that are not committed" in capsys.readouterr().err


# The changelog.


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("## [Unreleased]\n\n## [1.2.0] - 2026-11-18\n- A\n", "", id="ready"),
        pytest.param(
            "## [Unreleased]\n- B\n\n## [1.2.0] - 2026-11-18\n- A\n",
            "CHANGELOG.md has changes under Unreleased: move them to 1.2.0",
            id="changes that no release has",
        ),
        pytest.param(
            "## [Unreleased]\n\n## [1.1.0] - 2026-10-01\n- A\n",
            "CHANGELOG.md has no section for 1.2.0 below Unreleased",
            id="another version",
        ),
        pytest.param(
            "## [Unreleased]\n",
            "CHANGELOG.md has no section for 1.2.0 below Unreleased",
            id="no version",
        ),
        pytest.param(
            "## [Unreleased]\n\n## [1.2.0]\n- A\n",
            "CHANGELOG.md has no date for 1.2.0: write ## [1.2.0] - 2026-11-18",
            id="no date",
        ),
        pytest.param(
            "## [Unreleased]\n\n## [1.2.0] - 18.11.2026\n- A\n",
            "CHANGELOG.md has no date for 1.2.0: write ## [1.2.0] - 2026-11-18",
            id="another kind of date",
        ),
        pytest.param(
            "## [Unreleased]\n\n## [1.2.0] - 2026-11-19\n- A\n",
            "CHANGELOG.md dates 1.2.0 on 2026-11-19, which is to come",
            id="tomorrow",
        ),
        pytest.param(
            "## [1.2.0] - 2026-11-18\n- A\n",
            "CHANGELOG.md does not begin with an Unreleased section",
            id="no place for what comes next",
        ),
    ],
)
def test_the_changelog_has_this_version_and_its_date(text: str, complaint: str) -> None:
    expected = [complaint] if complaint else []
    assert list(changelog_faults(f"# Changelog\n\n{text}", "1.2.0", TODAY)) == expected


def test_the_changelog_of_this_checkout_is_dated() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    dates = []
    for heading in headings[1:]:
        match = re.fullmatch(r"\[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d)", heading)
        assert match, heading
        dates.append(dt.date.fromisoformat(match[1]))
    assert dates
    assert dates == sorted(dates, reverse=True)


@pytest.mark.parametrize("name", ["1.2.0.dev1", "1.2", "1.2.0rc1", "v1.2.0"])
def test_what_is_no_version_of_a_release_is_refused(name: str) -> None:
    assert list(version_faults(name)) == [
        f"{name} is no version of a release: write MAJOR.MINOR.PATCH"
    ]
    assert list(version_faults("1.2.0")) == []


# Git.


def test_a_clean_commit_may_be_tagged_and_the_tag_is_its_version(repository: Path) -> None:
    assert list(git_faults(repository, "v1.2.0")) == []
    git(repository, "tag", "v1.2.0")
    assert list(git_faults(repository, "v1.2.0")) == []


def test_a_tag_of_another_version_is_refused(repository: Path) -> None:
    git(repository, "tag", "v1.3.0")
    assert list(git_faults(repository, "v1.2.0")) == [
        "this commit has the tag v1.3.0, but it is v1.2.0"
    ]


def test_a_version_is_released_once(repository: Path) -> None:
    git(repository, "tag", "v1.2.0")
    git(repository, "commit", "--allow-empty", "--message", "Two")
    assert list(git_faults(repository, "v1.2.0")) == [
        "another commit has the tag v1.2.0: this version has been released"
    ]


@pytest.mark.parametrize("name", ["file", "new"])
def test_what_is_not_committed_is_not_released(repository: Path, name: str) -> None:
    (repository / name).write_text("two\n")
    assert list(git_faults(repository, "v1.2.0")) == ["there are changes that are not committed"]
