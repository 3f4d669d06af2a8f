import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy import __version__
from proxy.cli import main

GOOD = "upstreams: {a: 'http://127.0.0.1:1'}\nroutes: [{name: a, match: /**, upstream: a}]\n"
OK = "ok (1 route, 1 upstream); not checked: whether upstreams answer and addresses are free"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments, env=environ, prog_name="holdfast")
    return result.exit_code, result.output


def test_a_good_file(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(GOOD)
    assert run("check", "-c", "holdfast.yaml") == (0, f"holdfast.yaml: {OK}\n")


def test_warnings_alone_are_good(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(GOOD + "policies: {p: {}}\n")
    assert run("check", "-c", "holdfast.yaml") == (
        0,
        (
            "holdfast.yaml:3:12: policies.p: warning: no route uses it, write policy: p in a route "
            "or remove it\n"
            "holdfast.yaml: ok (1 route, 1 upstream), 1 warning; not checked: whether upstreams "
            "answer and addresses are free\n"
        ),
    )


def test_with_strict_they_are_not(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(GOOD + "policies: {p: {}}\n")
    status, output = run("check", "--strict", "holdfast.yaml")
    assert status == 1
    assert output.splitlines()[-1] == "holdfast.yaml: not good enough for --strict, 1 warning"
    status, output = run("check", "--strict", "--format", "json", "holdfast.yaml")
    assert status == 1
    told = json.loads(output)
    assert (told["ok"], told["strict"]) == (False, True)
    assert told["summary"] == "holdfast.yaml: not good enough for --strict, 1 warning"


def test_what_is_good_is_so_with_strict(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(GOOD)
    assert run("check", "--strict", "holdfast.yaml") == (
        0,
        f"holdfast.yaml: {OK}\n",
    )
    (folder / "holdfast.yaml").write_text(GOOD + "listen: 80\n")
    status, output = run("check", "--strict", "holdfast.yaml")
    assert (status, output.splitlines()[-1]) == (1, "holdfast.yaml: 1 fault")


def test_files_are_arguments_or_options(folder: Path) -> None:
    (folder / "base.yaml").write_text(GOOD + "listen: 80\n")
    (folder / "site.yaml").write_text("listen: 127.0.0.1:2\n")
    good = (0, f"base.yaml, site.yaml: {OK}\n")
    assert run("check", "base.yaml", "site.yaml") == good
    assert run("check", environ={"HOLDFAST_CHECK_CONFIG": "base.yaml:site.yaml"}) == good
    status, output = run("check", "base.yaml", "-c", "site.yaml")
    assert status == 2
    assert "write all files in one way: holdfast check base.yaml production.yaml" in output
    # What is typed wins over the environment.
    assert run("check", "base.yaml", "site.yaml", environ={"HOLDFAST_CHECK_CONFIG": "x"}) == good


def test_faults(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(GOOD + "listen: 80\nadmin: 81\n")
    status, output = run("check", "-c", "holdfast.yaml")
    assert status == 1
    assert output.splitlines()[0].startswith("holdfast.yaml:3:9: listen: 80 has no address")
    assert output.splitlines()[-1] == "holdfast.yaml: 2 faults"


def test_several_files_and_the_environment(folder: Path) -> None:
    (folder / "base.yaml").write_text(GOOD + "listen: 80\n")
    (folder / "site.yaml").write_text("listen: ${LISTEN}\n")
    assert run(
        "check", "-c", "base.yaml", "-c", "site.yaml", environ={"LISTEN": "127.0.0.1:2"}
    ) == (0, f"base.yaml, site.yaml: {OK}\n")


def test_for_programs(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(GOOD + "listen: 80\n")
    status, output = run("check", "-c", "holdfast.yaml", "--format", "json")
    assert status == 1
    assert run("check", "-c", "holdfast.yaml", "--json") == (status, output)
    assert json.loads(output) == {
        "ok": False,
        "strict": False,
        "summary": "holdfast.yaml: 1 fault",
        "findings": [
            {
                "file": "holdfast.yaml",
                "line": 3,
                "column": 9,
                "path": "listen",
                "text": "80 has no address, write 127.0.0.1:80, or 0.0.0.0:80 to be reachable from "
                "outside",
                "warning": False,
            }
        ],
        "windows": [],
        "concurrency": [],
        "not_checked": [],
    }


LIMITED = """
store: {store}
upstreams:
  a:
    urls: [http://127.0.0.1:1]
    throttle: {{rate: [10/s, 5000/h], burst: 5}}
routes:
  - {{name: search, match: /**, upstream: a, throttle: {{rate: 20/s, key: client_ip}}}}
"""


@pytest.mark.parametrize(
    ("store", "used"),
    [
        pytest.param("memory", (97, 99, 97), id="in one process"),
        pytest.param("redis://redis", (95, 99, 95), id="for all instances"),
        pytest.param("{url: redis://redis, permit_life: 200ms}", (81, 99, 81), id="far away"),
    ],
)
def test_the_most_in_one_window(folder: Path, store: str, used: tuple[int, int, int]) -> None:
    (folder / "holdfast.yaml").write_text(LIMITED.format(store=store))
    status, output = run("check", "-c", "holdfast.yaml")
    assert status == 0
    a, b, c = used
    both = "upstreams answer" if store == "memory" else "upstreams and the store answer"
    last = (
        "holdfast.yaml: ok (1 route, 1 upstream), 1 warning; not checked: whether "
        f"{both} and addresses are free"
    )
    assert output.replace(" can be used", "").splitlines()[-4:] == [
        f"throttle of upstream a: at most 14 in any 1s; {a}% of 10/s",
        f"throttle of upstream a: at most 5004 in any 1h; {b}% of 5000/h",
        f"throttle of route search: at most 20 in any 1s for each client_ip; {c}% of 20/s",
        last,
    ]
    windows = json.loads(run("check", "-c", "holdfast.yaml", "--format", "json")[1])["windows"]
    assert [(window["of"], window["most"]) for window in windows] == [
        ("upstream a", 14),
        ("upstream a", 5004),
        ("route search", 20),
    ]


def test_the_most_at_a_time(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(
        "upstreams: {a: {urls: ['http://127.0.0.1:1'], throttle: {concurrency: 50}}}\n"
        "routes: [{name: b, match: /**, upstream: a,\n"
        "          throttle: {rate: 5/s, concurrency: 3, key: client_ip}}]\n"
    )
    assert run("check", "-c", "holdfast.yaml")[1].splitlines()[:-1] == [
        "throttle of upstream a: at most 50 at a time",
        "throttle of route b: at most 5 in any 1s for each client_ip; 97% of 5/s can be used",
        "throttle of route b: at most 3 at a time for each client_ip",
    ]
    report = json.loads(run("check", "-c", "holdfast.yaml", "--format", "json")[1])
    assert [window["rate"] for window in report["windows"]] == ["5/s"]
    assert report["concurrency"] == [
        {"of": "upstream a", "most": 50, "key": ""},
        {"of": "route b", "most": 3, "key": "client_ip"},
    ]


def test_without_a_file_it_says_what_to_write() -> None:
    status, output = run("check")
    assert status == 2
    assert "no configuration given, write: holdfast check holdfast.yaml" in output


def test_a_file_that_is_not_there(folder: Path) -> None:
    assert folder.is_dir()
    assert run("check", "-c", "none.yaml") == (
        1,
        "none.yaml: cannot be read (no such file), correct the path\nnone.yaml: 1 fault\n",
    )


def test_the_version() -> None:
    assert run("--version") == (0, f"holdfast, version {__version__}\n")


def test_a_command_that_is_not_there() -> None:
    status, output = run("chekc")
    assert status == 2
    assert "No such command 'chekc'" in output
