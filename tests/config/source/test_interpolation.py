"""``${…}``: what is put in, and what is never said about it. » marks the position."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import Loaded

FILE = """\
upstreams: {{a: "http://127.0.0.1:1"}}
limits:
  connections: {connections}
routes:
  - match: /**
    upstream: a
    timeout: {timeout}
    headers:
      request:
        set:
          X-Value: {value}
"""


def written(connections: str = "5", timeout: str = "5s", value: str = "x") -> str:
    return FILE.format(connections=connections, timeout=timeout, value=value)


@pytest.mark.parametrize(
    ("value", "environ", "expected"),
    [
        ("${A}", {"A": "1"}, "1"),
        ("'Bearer ${A}${B}'", {"A": "1", "B": "2"}, "Bearer 12"),
        ("${A:-none}", {}, "none"),
        ("${A:-none}", {"A": ""}, "none"),
        ("${A:-none}", {"A": "1"}, "1"),
        ("${A:-}", {}, ""),
        ("'${A:?no}'", {"A": "1"}, "1"),
        ("$$", {}, "$"),
        ("$${A}", {"A": "1"}, "${A}"),
        ("$$$${A}", {"A": "1"}, "$${A}"),
        ("$$${A}", {"A": "1"}, "$1"),
        ("$A costs 5$", {"A": "1"}, "$A costs 5$"),
        ("${A}", {"A": "{x: 1}"}, "{x: 1}"),
        ("${A}", {"A": "${B}"}, "${B}"),
    ],
)
def test_what_is_put_in(
    loaded: Callable[..., Loaded], value: str, environ: dict[str, str], expected: str
) -> None:
    settings = loaded(written(value=value), environ).settings
    assert settings.routes[0].request_headers.set == (("X-Value", expected),)


def test_it_is_put_in_once_where_a_short_form_is_spelled_out(loaded: Callable[..., Loaded]) -> None:
    settings = loaded(
        "upstreams: {a: '${URL}'}\nroutes: [{match: /$$$$/a, upstream: a}]\n",
        {"URL": "http://127.0.0.1:1/$$"},
    ).settings
    assert settings.upstreams[0].origins[0].base_path == "/$$"
    assert settings.routes[0].match.paths == ("/$$/a",)


def test_text_is_read_as_what_the_key_takes(loaded: Callable[..., Loaded]) -> None:
    settings = loaded(written(connections="${N}", timeout="${T}s"), {"N": "7", "T": "9"}).settings
    assert settings.limits.connections == 7
    assert settings.routes[0].timeout == 9


@pytest.mark.parametrize("content", [b"secret\n", b"secret", b"secret\r\n"])
def test_a_file_loses_one_newline(
    loaded: Callable[..., Loaded], folder: Path, content: bytes
) -> None:
    (folder / "key").write_bytes(content)
    found = loaded(written(value="${file:key}"))
    assert found.settings.routes[0].request_headers.set == (("X-Value", "secret"),)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        pytest.param(
            written(value="»${A:?ask the payments team}"),
            "routes[0].headers.request.set.X-Value: A is not set in the environment: ask the "
            "payments team",
            id="a variable that must be there, with words of the author",
        ),
        pytest.param(
            written(value="»'${A'"),
            "routes[0].headers.request.set.X-Value: ${ begins a reference that is not complete, "
            "write ${NAME}, ${NAME:-default}, ${file:PATH}, or $$ for a plain $",
            id="a brace that is not closed",
        ),
        pytest.param(
            written(value="»'${A:-${B}}'"),
            "routes[0].headers.request.set.X-Value: ${ begins a reference that is not complete, "
            "write ${NAME}, ${NAME:-default}, ${file:PATH}, or $$ for a plain $",
            id="one within another",
        ),
        pytest.param(
            written(timeout="»${SECRET}"),
            "routes[0].timeout: the value of ${SECRET} is no duration in range, write 30s (say)",
            id="a secret as a duration",
        ),
        pytest.param(
            written(connections="»${SECRET}"),
            "limits.connections: the value of ${SECRET} is no whole number in range, write 64 "
            "(say)",
            id="a secret as a number",
        ),
        pytest.param(
            written().replace('"http://127.0.0.1:1"', "»'http://u:${SECRET}@a.example'"),
            "upstreams.a: the value of ${SECRET} is no URL of an upstream, write "
            "http://127.0.0.1:9200 (say)",
            id="a secret in a URL",
        ),
        pytest.param(
            written().replace("upstream: a", "upstream: »'x${SECRET}'"),
            "routes[0].upstream: no upstream is called the value of ${SECRET}, write one of a",
            id="a secret as a name",
        ),
        pytest.param(
            written().replace("match: /**", "match: »GET ${SECRET}"),
            "routes[0].match: the value of ${SECRET} is no path, write /v1/** (say)",
            id="a secret as a path",
        ),
        pytest.param(
            written().replace("match: /**", "match: »/hooks/${SECRET}"),
            "routes[0]: the path may hold a secret, and metrics would show it, write name: hooks "
            "(say)",
            id="a secret in a path that would be a name",
        ),
        pytest.param(
            written(value="»${NEWLINE}"),
            "routes[0].headers.request.set.X-Value: the value of ${NEWLINE} is no value of a "
            'header, write "text" (say)',
            id="a second header in a variable",
        ),
        pytest.param(
            "admin: »0.0.0.0:${PORT}\n" + written(),
            "admin: the value of ${PORT} is reachable from outside and there is no admin_token, "
            "write admin_token: ${HOLDFAST_ADMIN_TOKEN} or admin: 127.0.0.1:9901",
            id="a port in an address",
        ),
    ],
)
def test_a_fault_names_the_variable_and_not_its_value(
    only_line: Callable[..., None], marked: str, expected: str
) -> None:
    environ = {"SECRET": "hunter2", "NEWLINE": "a\r\nX-Admin: 1", "PORT": "9876"}
    only_line(marked, expected, environ)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("folder", None, "cannot read folder (it is a directory), mount it or correct the path"),
        ("/dev/zero", None, "cannot read /dev/zero (it is no regular file), correct the path"),
        ("big", b"x" * 70_000, "big is larger than 64KiB, write a smaller file"),
        ("bytes", b"\xff", "bytes is not UTF-8 text, save it as UTF-8"),
    ],
)
def test_files_that_cannot_be_put_in(
    only_line: Callable[..., None], folder: Path, name: str, content: bytes | None, reason: str
) -> None:
    (folder / "folder").mkdir()
    if content is not None:
        (folder / name).write_bytes(content)
    only_line(
        written(value=f"»${{file:{name}}}"), f"routes[0].headers.request.set.X-Value: {reason}"
    )
