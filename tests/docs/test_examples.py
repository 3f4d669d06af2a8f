"""Every example of every page does what the page says: see ``kit/pages.py`` for the conventions."""

import json
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from proxy.cli import main
from proxy.config import ConfigError, load
from tests.docs.kit.pages import PAGES, ROOT, Block, blocks_in, blocks_of, name_of
from tests.docs.kit.session import Session, masked, play, session, until

CONTEXTS = {"top", "route", "upstream", "faulty", "other"}
PARTS = {"demo", "upstream", "redis", "installed"}

Sitting = tuple[Path, str, list[Block]]
"""A page, what runs beside its commands, and the blocks that are for this session."""


def sittings() -> list[Sitting]:
    """The sessions of all pages that have commands."""
    found = []
    for page in PAGES:
        run = [block for block in blocks_of(page) if block.language == "console" or is_log(block)]
        for beside, blocks in groupby(run, key=lambda block: block.session):
            found.append((page, beside.partition(": ")[2], list(blocks)))
    return found


def is_log(block: Block) -> bool:
    return block.language == "json" and "log" in block.words


def has_logged(opened: Session, block: Block) -> bool:
    said = masked(opened.said)
    return all(masked(line) in said for line in block.text.splitlines())


def measured(sitting: Sitting) -> Any:  # noqa: ANN401 - pytest's own type is private
    """The demo's outputs depend on timeouts: little may run beside it."""
    page, beside, _ = sitting
    marks = [pytest.mark.alone] if "demo" in beside.split() else []
    return pytest.param(sitting, id=f"{name_of(page)} {beside}".strip(), marks=marks)


# Commands.


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a new environment that has the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel")
    subprocess.run([*build, "--directory", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    install = (sys.executable, "-m", "pip", "--quiet", "--python", str(environment), "install")
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True)
    # What it depends on is what this environment has: nothing is fetched. Holdfast itself is
    # installed here by a file that only this environment's own start reads.
    site = sysconfig.get_path("purelib", vars={"base": str(environment)})
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    where = [str(environment / "bin" / "python"), "-c", "import proxy; print(proxy.__file__)"]
    found = subprocess.run(where, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert found.startswith(str(environment)), "these are not the files of the wheel"
    return environment / "bin"


@pytest.mark.parametrize("sitting", [measured(one) for one in sittings()])
def test_commands_print_what_is_shown(
    sitting: Sitting, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page, beside, blocks = sitting
    parts = beside.split()
    assert set(parts) <= PARTS, f"{name_of(page)} asks for a session that there is not"
    with session(tmp_path, parts, blocks_of(page)) as opened:
        if "installed" in parts:
            opened.use(request.getfixturevalue("installed"))
        for block in blocks:
            if is_log(block):
                until(partial(has_logged, opened, block), lambda: opened.said)
            else:
                play(opened, block)


def test_the_demo_is_started_as_the_tour_is_tested() -> None:
    assert "-m proxy.demo --with-proxy config/demo.yaml\n" in (ROOT / "Makefile").read_text()


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that *words* call, and what is left of them."""
    found: click.Command = main
    while isinstance(found, click.Group):
        context = click.Context(found)
        name = next((word for word in words if not word.startswith("-")), "")
        inner = found.get_command(context, name)
        if inner is None:
            assert not name, f"there is no command {name}"
            break
        found, words = inner, words[words.index(name) + 1 :]
    return found, words


def unknown_options(line: str) -> list[str]:
    """What a ``holdfast`` command in *line* names as options and does not have."""
    command, words = command_of(shlex.split(line, comments=True)[1:])
    known = {"--help", "-h", "--version"}
    known |= {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    named = [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
    return [option for option in named if option not in known]


@pytest.mark.parametrize("block", blocks_in("sh", "bash"), ids=str)
def test_commands_that_are_not_run_are_known(block: Block) -> None:
    subprocess.run(["/bin/sh", "-n", "-c", block.text], check=True)
    for line in re.sub(r"\\\n", "", block.text).splitlines():
        for command in re.findall(r"(?:^|[;|&] *)(holdfast [^;|&>]*)", line):
            assert not unknown_options(command), line


# Configurations.


def indented(text: str, by: str) -> str:
    return "".join(
        f"{by}{line}" if line.strip() else line for line in text.splitlines(keepends=True)
    )


def named_upstreams(part: Any) -> set[str]:  # noqa: ANN401 - any YAML
    """What ``upstream:`` says, anywhere in *part*."""
    if isinstance(part, list):
        return {name for one in part for name in named_upstreams(one)}
    if not isinstance(part, dict):
        return set()
    here = {part["upstream"]} if isinstance(part.get("upstream"), str) else set()
    return here | {name for one in part.values() for name in named_upstreams(one)}


def named_policies(part: Any) -> set[str]:  # noqa: ANN401 - any YAML
    policy = part.get("policy", []) if isinstance(part, dict) else []
    return {policy} if isinstance(policy, str) else {*policy}


def in_a_route(text: str) -> list[str]:
    content = yaml.safe_load(text)
    upstreams = named_upstreams(content) | {"api"}
    lines = ["store: sqlite:keys.db", "state_dir: state", "upstreams:"]
    lines += [f"  {name}: http://127.0.0.1:9000" for name in sorted(upstreams)]
    if named_policies(content):
        lines += ["policies:", *(f"  {name}: {{}}" for name in sorted(named_policies(content)))]
    lines += ["routes:", "  - name: of the example"]
    lines += [f"    {key}: {value}" for key, value in ROUTE_NEEDS.items() if key not in content]
    lines += [indented(text, "    ")]
    lines += [f"  - {{match: /rest/{name}, upstream: {name}}}" for name in sorted(upstreams)]
    return ["\n".join(lines)]


def in_an_upstream(text: str) -> list[str]:
    urls = [] if "urls" in yaml.safe_load(text) else ["    urls: [http://127.0.0.1:9000]"]
    lines = ["upstreams:", "  api:", *urls, indented(text, "    ")]
    return ["\n".join((*lines, "routes:", "  - {match: /**, upstream: api}", ""))]


def at_the_top(text: str) -> list[str]:
    """A base file, and *text* over it."""
    content = yaml.safe_load(text)
    has, routes = {*content.get("upstreams", {})}, "routes" in content
    needs = named_upstreams(content) - has
    lines = [] if "store" in content else ["store: sqlite:keys.db"]
    if needs or not has:
        lines += ["upstreams:"]
        lines += [f"  {name}: http://127.0.0.1:9000" for name in sorted(needs or {"api"})]
    if not routes:
        lines += ["routes:"]
        targets = sorted(has | needs or {"api"})
        lines += [f"  - {{match: /{name}/**, upstream: {name}}}" for name in targets]
    return ["\n".join((*lines, "")), text]


SECRETS = "/run/secrets/holdfast"
ROUTE_NEEDS = {"match": "/example/**", "upstream": "api"}
AROUND = {"route": in_a_route, "upstream": in_an_upstream, "top": at_the_top}


def warnings_of(texts: list[str], folder: Path) -> tuple[object, ...]:
    """What is said of the files with *texts*, loaded together; faults are raised."""
    files = []
    for number, text in enumerate(texts):
        files.append(folder / f"{number}.yaml")
        files[-1].write_text(text.replace(SECRETS, str(folder)), encoding="utf-8")
        for name in re.findall(rf"{SECRETS}/([\w-]+)", text):
            (folder / name).write_text("secret\n", encoding="utf-8")
    names = re.findall(r"\$\{(\w+)(?:\}|:\?)", "".join(texts))
    return load(files, dict.fromkeys(names, "secret")).warnings


@pytest.mark.parametrize("block", blocks_in("yaml"), ids=str)
def test_configurations_load_without_a_warning(block: Block, tmp_path: Path) -> None:
    assert {*block.words} <= CONTEXTS, "pages.py says which words there are"
    (context,) = block.words or ("",)
    if context == "other":
        list(yaml.safe_load_all(block.text))
        return
    texts = AROUND[context](block.text) if context in AROUND else [block.text]
    if context == "faulty":
        try:
            assert warnings_of(texts, tmp_path)
        except ConfigError:
            return
    else:
        assert warnings_of(texts, tmp_path) == ()


# Others.


@pytest.mark.parametrize("block", blocks_in("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError:
        for line in block.text.splitlines():
            json.loads(line)


@pytest.mark.parametrize("block", blocks_in("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=0x2000)  # await may stand at the top


# The harness finds what is wrong.


def page_with(text: str) -> list[Block]:
    return blocks_of(ROOT / "README.md", text)


def test_blocks_have_a_language_words_a_line_and_a_session() -> None:
    first, second, third = page_with(
        "# Top\n```yaml route\n# a.yaml\n```\n<!-- session: demo -->\n```console\n$ a \\\n> b\nc\n"
        "$ d\n```\n<!-- session: upstream redis -->\n```\nplain\n```\n"
    )
    assert (first.language, first.words, first.line, first.session) == ("yaml", ("route",), 2, "")
    assert first.file == "a.yaml"
    assert list(second.steps()) == [("a b", "c\n"), ("d", "")]
    assert second.session == "1: demo"
    assert (third.language, third.session) == ("text", "2: upstream redis")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("```yaml route\nretry: {atempts: 3}\n```\n", id="an unknown key of a route"),
        pytest.param("```yaml upstream\nretry: true\n```\n", id="a key of a route"),
        pytest.param("```yaml top\nworkers: many\n```\n", id="a bad value"),
        pytest.param("```yaml\nlisten: 127.0.0.1:8080\n```\n", id="a part without a word for it"),
        pytest.param(
            "```yaml route\nupstream: b\ntimeout: 1s\nretry: {attempt_timeout: 2s}\n```\n",
            id="what does not go together",
        ),
    ],
)
def test_a_faulty_configuration_is_found(text: str, tmp_path: Path) -> None:
    (block,) = page_with(text)
    with pytest.raises((ConfigError, AssertionError)):
        test_configurations_load_without_a_warning(block, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```yaml route\nupstream: b\npolicy: patient\nretry: true\n```\n",
        "```yaml upstream\nthrottle: 20/s\n```\n",
        "```yaml top\nstore: memory\n```\n",
        "```yaml top\nupstreams: {a: 'http://127.0.0.1:1'}\n```\n",
        "```yaml top\nroutes: [{match: /**, upstream: crm}]\n```\n",
        "```yaml faulty\nroutes: 3\n```\n",
        "```yaml other\nkind: Pod\n```\n",
    ],
)
def test_a_part_is_loaded_where_it_belongs(text: str, tmp_path: Path) -> None:
    (block,) = page_with(text)
    test_configurations_load_without_a_warning(block, tmp_path)


def test_an_option_that_a_command_does_not_have_is_found() -> None:
    assert unknown_options("holdfast dlq list --oldest --route=a --newest") == ["--newest"]
    with pytest.raises(AssertionError, match="there is no command undo"):
        unknown_options("holdfast undo --all")


def test_an_output_that_differs_is_found(tmp_path: Path) -> None:
    (block,) = page_with("```console\n$ echo one; echo two >&2\none\nthree\n```\n")
    with (
        session(tmp_path, (), ()) as opened,
        pytest.raises(AssertionError, match="prints now:\none"),
    ):
        play(opened, block)
