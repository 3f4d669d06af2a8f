"""What the files around the code promise."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

import proxy
from bench.results import PUBLISHED
from tests.generate import generated, main as generate, stale

ROOT = Path(__file__).parent.parent
WRITTEN_BY_US = {
    *(
        ".cfg",
        ".conf",
        ".json",
        ".lock",
        ".lua",
        ".md",
        ".py",
        ".service",
        ".toml",
        ".yaml",
        ".yml",
    ),
}
"""How the names of our files end: a running proxy may leave others among them."""


def tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's last stage: instruction and arguments, lines joined."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line and line[0] not in " #"]
    pairs = [(name, " ".join(rest.split())) for name, rest in lines]
    last_stage = max(i for i, (name, _) in enumerate(pairs) if name == "FROM")
    return pairs[last_stage:]


def test_dockerfile_is_clean_to_hadolint() -> None:
    subprocess.run([tool("hadolint"), "Dockerfile"], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("instruction", "arguments"),
    [
        pytest.param("USER", "65532:65532", id="a numeric user that is not root"),
        pytest.param("ENTRYPOINT", '["holdfast"]', id="no shell between docker and the proxy"),
        pytest.param("STOPSIGNAL", "SIGTERM", id="docker stop drains"),
        pytest.param(
            "CMD", '["run", "-c", "/etc/holdfast/holdfast.yaml"]', id="serves a mounted file"
        ),
    ],
)
def test_image(instruction: str, arguments: str) -> None:
    assert (instruction, arguments) in instructions()


def test_image_checks_its_health_with_its_own_command() -> None:
    arguments = dict(instructions())["HEALTHCHECK"]
    assert arguments.endswith('CMD ["holdfast", "healthcheck"]')


def test_image_is_built_from_the_package_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule for rule in rules if rule.startswith("!")} == {
        "!LICENSE",
        "!README.md",
        "!config/deploy/image/",
        "!proxy/",
        "!pyproject.toml",
        "!requirements-build.lock",
        "!requirements.lock",
    }


@pytest.mark.parametrize("file", ["config/demo.yaml", "bench/proxies/holdfast.yaml"])
def test_example_tells_editors_its_schema(file: str) -> None:
    first_line = (ROOT / file).read_text().splitlines()[0]
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first_line)
    assert match
    assert (ROOT / file).parent.joinpath(match[1]).is_file()


def make(*arguments: str, folder: Path = ROOT) -> str:
    """What make prints."""
    result = subprocess.run(
        ["make", "--no-print-directory", *arguments],  # noqa: S607 - whichever make the developer uses
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        # Not the flags of a make that runs these tests.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )
    return result.stdout


def test_makefile_lists_what_it_can_do_and_contributors_are_told() -> None:
    listed = [line.split()[1] for line in make().splitlines()]
    told = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`make {target}`" in told for target in listed)
    assert listed == [
        "help",
        "setup",
        "demo",
        "tools",
        "test",
        "test-deep",
        "soak",
        "test-newest",
        "check",
        "docs",
        "mutants",
        "generate",
        "bench",
        "lock",
        "audit",
        "dist",
        "sbom",
        "image",
        "release-check",
        "clean",
    ]


def test_cleaning_leaves_the_published_benchmark_and_no_other(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    results = tmp_path / "bench" / "results"
    made = [tmp_path / ".venv", tmp_path / "mutants"]
    for folder in (tmp_path / "proxy", tmp_path / "tests", results, *made):
        folder.mkdir(parents=True)
    for name in ("published.json", "published.md", "latest.json", "quick.md"):
        (results / name).touch()
    make("clean", folder=tmp_path)
    assert {path.name for path in results.iterdir()} == {"published.json", "published.md"}
    assert not any(folder.exists() for folder in made)


# What is generated.


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of all that is generated, and of what that needs."""
    for path in (*generated(ROOT), PUBLISHED):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def test_nothing_generated_is_stale() -> None:
    assert not stale(ROOT), "run make generate"


@pytest.mark.parametrize(
    ("file", "was", "now"),
    [
        pytest.param("config/schema.json", '"500B/s"', '"600B/s"', id="the schema"),
        pytest.param(
            "docs/reference/configuration.md",
            "| `limits.keepalive` |",
            "| `limits.idle` |",
            id="a table of keys",
        ),
        pytest.param(
            "docs/reference/metrics.md", "| `holdfast_workers` |", "| `workers` |", id="the metrics"
        ),
        pytest.param(
            "docs/reference/command-line.md", "| `--watch` |", "| `--look` |", id="the commands"
        ),
        pytest.param(
            "docs/explanation/performance.md",
            "| small GET, CPU |",
            "| a GET, CPU |",
            id="the figures",
        ),
        pytest.param("README.md", "| CPU of a small GET", "| CPU of a GET", id="the ratios"),
        pytest.param("bench/results/published.md", "# Bars", "# Bar", id="the tables beside them"),
    ],
)
def test_what_is_stale_is_named_and_left_alone_by_the_check_and_made_anew_by_generate(
    checkout: Path, file: str, was: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkout / file
    good = path.read_text()
    path.write_text(good.replace(was, now))
    assert path.read_text() != good
    before = {one: one.read_bytes() for one in checkout.rglob("*") if one.is_file()}

    assert generate(["--check", "--root", str(checkout)]) == 1
    assert capsys.readouterr().err == f"{file} is stale: run make generate\n"
    assert {one: one.read_bytes() for one in checkout.rglob("*") if one.is_file()} == before

    assert generate(["--root", str(checkout)]) == 0
    assert capsys.readouterr().out == f"{file} is written\n"
    assert path.read_text() == good
    assert generate(["--check", "--root", str(checkout)]) == 0


def test_a_file_that_is_missing_is_stale(checkout: Path) -> None:
    (checkout / "config" / "schema.json").unlink()
    assert generate(["--check", "--root", str(checkout)]) == 1


def test_a_page_without_a_place_for_its_figures_is_an_error(checkout: Path) -> None:
    page = checkout / "docs" / "explanation" / "performance.md"
    page.write_text(page.read_text().replace("<!-- bench -->", ""))
    with pytest.raises(ValueError, match="0 places"):
        generate(["--check", "--root", str(checkout)])


def test_make_check_changes_nothing_and_make_generate_does() -> None:
    assert make("--dry-run", "check").splitlines()[-1].endswith("-m tests.generate --check")
    assert make("--dry-run", "generate").splitlines()[-1].endswith("-m tests.generate")


# What tools read.


@pytest.mark.parametrize(
    "name",
    [
        ".ci/run",
        ".dockerignore",
        ".editorconfig",
        ".github/PULL_REQUEST_TEMPLATE.md",
        ".github/dependabot.yml",
        ".gitignore",
        ".pre-commit-config.yaml",
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "Dockerfile",
        "LICENSE",
        "Makefile",
        "README.md",
        "RELEASING.md",
        "SECURITY.md",
        "docs/decisions/README.md",
        "proxy/py.typed",
        "pyproject.toml",
        "requirements-build.lock",
        "requirements-dev.lock",
        "requirements.lock",
    ],
)
def test_what_belongs_to_a_repository_is_there(name: str) -> None:
    assert (ROOT / name).is_file()


def test_before_a_commit_runs_what_make_check_runs() -> None:
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local", "nothing is fetched"
    (hook,) = repo["hooks"]
    assert (hook["entry"], hook["language"]) == ("make check", "system")
    assert not hook["pass_filenames"], "make would take them for targets"
    assert hook["always_run"]


def editor_settings() -> dict[str, dict[str, str]]:
    parser = ConfigParser()
    parser.read_string(f"[top]\n{(ROOT / '.editorconfig').read_text()}")
    return {section: dict(parser[section]) for section in parser.sections()}


def test_editors_are_told_what_the_formatter_wants() -> None:
    settings = editor_settings()
    with (ROOT / "pyproject.toml").open("rb") as file:
        ruff = tomllib.load(file)["tool"]["ruff"]
    assert settings["top"] == {"root": "true"}
    assert settings["*.py"] == {"indent_size": "4", "max_line_length": str(ruff["line-length"])}
    assert settings["{Makefile,Caddyfile}"] == {"indent_style": "tab"}


def test_files_are_as_editors_are_told() -> None:
    assert (
        editor_settings()["*"]
        | {
            "charset": "utf-8",
            "end_of_line": "lf",
            "insert_final_newline": "true",
            "trim_trailing_whitespace": "true",
        }
        == editor_settings()["*"]
    )
    folders = ("proxy", "tests", "bench", "config", "docs", ".ci", ".github")
    written = [path for room in folders for path in (ROOT / room).rglob("*") if path.is_file()]
    for path in [*written, *(path for path in ROOT.iterdir() if path.is_file())]:
        if path.suffix not in WRITTEN_BY_US or path.name.startswith(("latest.", "quick.")):
            continue
        content = path.read_bytes()
        content.decode()
        assert b"\r\n" not in content, path
        assert not content or content.endswith(b"\n"), path
        assert not re.search(rb"[ \t]\n", content), path


def test_ci_can_be_started() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_changelog_has_a_place_for_what_comes_next_or_names_this_version() -> None:
    heading = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading
    assert heading[1] in {"Unreleased", proxy.__version__}
