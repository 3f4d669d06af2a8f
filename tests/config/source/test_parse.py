"""Files that are no YAML, not quite YAML, or too much of it. » marks the position."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import ConfigError, load
from proxy.config.diagnostics.position import Position, Source
from proxy.config.source.nodes import Scalar

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        pytest.param("»", "the file is empty, write upstreams and routes", id="nothing at all"),
        pytest.param(
            "»# later\n", "the file is empty, write upstreams and routes", id="only a comment"
        ),
        pytest.param(
            "»- a\n",
            "the file has to begin with keys, write upstreams: and routes: (say)",
            id="a list at the top",
        ),
        pytest.param(
            "»hello\n",
            "the file has to begin with keys, write upstreams: and routes: (say)",
            id="a word at the top",
        ),
        pytest.param(
            "listen: 127.0.0.1:1\n»---\nlisten: 127.0.0.1:2\n",
            "a second document begins here, write it to a file of its own and repeat -c",
            id="two documents",
        ),
        pytest.param(
            "listen: 127.0.0.1»: 8080\n",
            'a ":" is not expected here, put the value in quotes',
            id="two colons in a line",
        ),
        pytest.param(
            "limits:\n  keepalive: 5s\n  connections:»5\n",
            'a space is missing behind the ":", write one',
            id="no space behind the last colon",
        ),
        pytest.param(
            "listen:»127.0.0.1:8080\nname: a\n",
            'a space is missing behind the ":", write one',
            id="no space behind a colon",
        ),
        pytest.param(
            "routes:\n- match:»/**\n  upstream: a\n",
            'a space is missing behind the ":", write one',
            id="no space behind a colon, before a path",
        ),
        pytest.param(
            "name: a\n»retry\nlisten: b\n",
            'a key needs a ":", write one behind it',
            id="a key without a colon",
        ),
        pytest.param(
            "listen: »@a\n",
            "a value cannot begin with this character, put it in quotes",
            id="a sign that YAML keeps for itself",
        ),
        pytest.param(
            "listen: [a, b\nadmin»: c\n",
            'a list is not closed, write "]" at its end',
            id="a list that is not closed",
        ),
        pytest.param(
            "limits: {a: b\nadmin»: c\n",
            'a mapping is not closed, write "}" at its end',
            id="a mapping that is not closed",
        ),
        pytest.param(
            "limits: {connections: »${N}}\n",
            'within {} and [] a value with ${…} needs quotes, write "${…}"',
            id="a reference within braces",
        ),
        pytest.param(
            "listen: »'a\nadmin: c\n",
            "a quote is not closed, write the other one",
            id="a quote that is not closed",
        ),
        pytest.param(
            'listen: "a»\\q"\n',
            "\\ begins an escape in double quotes, write single quotes",
            id="a backslash in double quotes",
        ),
        pytest.param(
            "listen: 127.0.0.1:1\nadmin: »\x01\n",
            "a control character stands here, remove it",
            id="a control character",
        ),
        pytest.param(
            "listen: »*nobody\n",
            "there is no anchor &nobody above, write *nobody in quotes if no alias is meant",
            id="an alias of nothing",
        ),
        pytest.param(
            "limits: &a {b: »*a}\n", "&a contains itself, write it out", id="an alias of itself"
        ),
        pytest.param(
            "listen: »!!python/object:os.system x\n",
            "a tag (!…) has no meaning here, remove it",
            id="a tag",
        ),
        pytest.param("? »[a]\n: b\n", "a key is a single word, write one", id="a list as a key"),
        pytest.param(
            "a: " + "[" * 40 + "»" + "[" * 100_000,
            "this is nested deeper than 40 levels, make it flatter",
            id="a hundred thousand levels",
        ),
        pytest.param(
            "»" + "#" * 1024 * 1024 + "\n",
            "the file is larger than 1024KiB, make it smaller",
            id="a megabyte",
        ),
    ],
)
def test_a_file_that_cannot_be_read(
    only_line: Callable[..., None], marked: str, expected: str
) -> None:
    only_line(marked, expected)


def test_aliases_that_multiply(lines: Callable[..., list[str]]) -> None:
    (line,) = lines(BOMB)
    assert re.fullmatch(
        r"holdfast\.yaml:[0-9]+:[0-9]+: with its aliases the file has more than 100000 values, "
        "make it smaller",
        line,
    )


def test_bytes_that_are_no_text(folder: Path) -> None:
    (folder / "holdfast.yaml").write_bytes("listen: é\nadmin: ".encode() + b"\xff\n")
    with pytest.raises(ConfigError) as caught:
        load(["holdfast.yaml"], {})
    assert str(caught.value) == ("holdfast.yaml:2:8: the file is not UTF-8 text, save it as UTF-8")


def test_files_that_are_not_there(folder: Path) -> None:
    (folder / "folder").mkdir()
    with pytest.raises(ConfigError) as caught:
        load(["none.yaml", "folder", "a\0b"], {})
    assert str(caught.value) == (
        "none.yaml: cannot be read (no such file), correct the path\n"
        "folder: cannot be read (it is a directory), correct the path\n"
        "a\\x00b: cannot be read (no such file), correct the path"
    )
    assert caught.value.report.summary() == "none.yaml, folder, a\\x00b: 3 faults"


def test_a_line_stays_a_line_whatever_is_in_it(lines: Callable[..., list[str]]) -> None:
    (_, line) = lines('routes: []\n"a\\nb\\e[31m\\u202e": 1\n')
    assert line.startswith("holdfast.yaml:2:1: a\\nb\\x1b[31m\\u202e: unknown key, ")


def test_a_byte_order_mark_and_windows_lines(lines: Callable[..., list[str]]) -> None:
    (_, line) = lines("\ufefflisten: 127.0.0.1:1\r\nadmin: 5\r\n")
    assert line.startswith("holdfast.yaml:2:8: admin: 5 has no address")


def test_an_anchor_may_be_used_again(lines: Callable[..., list[str]]) -> None:
    text = """\
upstreams: {a: "http://127.0.0.1:1"}
routes:
  - {match: /a, upstream: a, headers: &edits {request: {set: {X-A: "1"}}}}
  - {match: /b, upstream: a, headers: *edits}
"""
    assert lines(text) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((word, "str") for word in ("on", "off", "yes", "no", "y", "1:30", "0b1", "1_000", "")),
        *((word, "bool") for word in ("true", "False", "TRUE")),
        *((word, "null") for word in ("null", "~", "Null")),
        *((word, "int") for word in ("0", "010", "-1", "0x1F", "0o17")),
        *((word, "float") for word in ("1e3", "1.", ".5", "-.inf", ".nan")),
    ],
)
def test_words_are_what_yaml_1_2_says(text: str, kind: str) -> None:
    assert Scalar(text, Position(Source("test")), plain=bool(text)).type == kind
