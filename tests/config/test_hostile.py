"""Whatever is in a file: a report or settings, never a crash, and never a secret."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from proxy.config import ConfigError, load
from proxy.config.schema import FILE, sections
from tests.config.core_schema import read
from tests.support.depth import fewer

random_files = settings(fewer(2), suppress_health_check=[HealthCheck.function_scoped_fixture])

SECRET = "hunter2"
# With a quote it is no name, host or address: those are meant to be seen.
ENVIRON = {"SECRET": f'{SECRET}"', "ODD": f"{SECRET}\n\udcff", "EMPTY": ""}

REFERENCE = read((Path(__file__).parents[2] / "config/holdfast.yaml").read_text())
KEYS = sorted(
    {key for section in sections(FILE) for key in section.keys}
    | {
        "true",
        "max_retries",
        "delay",
        "circuitBreaker",
        "<<",
        "url",
        "tiemout",
        "cert",
        "verify",
        "request",
        "X-Api-Key",
        "a\nb",
    }
)

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**6),
    st.floats(),
    st.text(max_size=8),
    st.from_regex(r"[0-9]{1,4}(\.[0-9])?(ms|s|w|MB|KiB| s)?", fullmatch=True),
    st.sampled_from(
        [
            "${SECRET}",
            "x${SECRET}y",
            "${ODD}",
            "${EMPTY}",
            "${UNSET}",
            "${SECRET:-}",
            "GET ${SECRET}",
            "http://${SECRET}",
            "http://a:${SECRET}@b",
            "http://a.example/${SECRET}",
            "127.0.0.1:${SECRET}",
            "redis://u:${SECRET}@b",
            "redis://u:${SECRET}",
            "redis://b/${SECRET}",
            "sqlite:${SECRET}",
            "sqlite://${SECRET}",
            "sqlite:${ODD}",
            "sqlite:/",
            "2${SECRET}",
            "409",
            "header:${SECRET}",
            "query:${SECRET}",
            "${SECRET}/s",
            "5/${SECRET}",
            "5/h",
            "10 per minute",
            "window",
            "${file:/dev/zero}",
            "${",
            "/v1/*",
            "^/(a|b)",
            "search",
            "payments",
            "none",
            "[::1]:1",
            "default",
            "5xx",
            "503+hint",
            "gateway-error",
            "always",
            "linear",
            "true",
            "false",
            "off",
        ]
    ),
)
trees = st.recursive(
    values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4),
    ),
    max_leaves=12,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:  # noqa: ANN401 - any JSON
    """The reference file with a few of its parts replaced, removed or put elsewhere."""
    tree = json.loads(json.dumps(REFERENCE))
    for _ in range(draw(st.integers(1, 4))):
        part = tree
        while True:
            steps = list(part) if isinstance(part, dict) else list(range(len(part)))
            if not steps:
                break
            step = draw(st.sampled_from(steps))
            below = part[step]
            if isinstance(below, dict | list) and draw(st.booleans()):
                part = below
                continue
            if draw(st.booleans()):
                part[step] = draw(trees)
            elif isinstance(part, dict):
                part[draw(st.sampled_from(KEYS))] = part.pop(step)
            else:
                del part[step]
            break
    return tree


def outcome(folder: Path, data: bytes) -> str:
    """Return everything that a user gets to see."""
    file = folder / "holdfast.yaml"
    file.write_bytes(data)
    try:
        loaded = load([file], ENVIRON)
    except ConfigError as error:
        report = error.report
        others = [report.summary(), repr(error)]
    else:
        report = loaded.report
        others = [loaded.summary, json.dumps(loaded.effective)]
    lines = [str(fault) for fault in report.diagnostics]
    assert all(line.isprintable() for line in lines)
    return "\n".join((*lines, *others, repr(report)))


@random_files
@given(tree=mutated())
def test_a_file_with_mistakes(tmp_path: Path, tree: object) -> None:
    assert SECRET not in outcome(tmp_path, json.dumps(tree).encode())


@random_files
@given(tree=st.dictionaries(st.sampled_from(KEYS), trees, max_size=6))
def test_a_file_that_is_all_mistakes(tmp_path: Path, tree: object) -> None:
    assert SECRET not in outcome(tmp_path, json.dumps(tree).encode())


@random_files
@given(
    text=st.text(
        alphabet=st.sampled_from("ab:-[]{}&*!|>'\"%@`#,?~<\\ \n\t\r0é\x00\x85\u2028${}"),
        max_size=60,
    )
)
def test_a_file_that_is_hardly_yaml(tmp_path: Path, text: str) -> None:
    assert outcome(tmp_path, text.encode())


@random_files
@given(data=st.binary(max_size=60))
def test_a_file_that_is_no_text(tmp_path: Path, data: bytes) -> None:
    assert outcome(tmp_path, data)


@pytest.mark.parametrize("wrap", ["{}", "[{}]", "{{a: {}}}"])
@pytest.mark.parametrize(
    "written",
    [
        "admin_token: {}\n",
        "defaults: {{headers: {{request: {{set: {{Authorization: {}}}}}}}}}\n",
        "upstreams: {{a: http://u:{}/x@a.example}}\n",
        "upstreams: {{a: {{url: 'http://u:{}@a.example'}}}}\n",
        "routes: [{{match: /, upstream: 'http://u:{}@a.example'}}]\n",
        "routes: [{{match: /, upstream: a, policy: 'u:{}@a.example'}}]\n",
        "upstreams: {{a: {{urls: http://u:{}@a.example}}}}\n",
        "store: redis://u:{}@a.example\n",
        "store: redis://u:{}/x@a.example\n",
        "store: redis://u:{}@a.example/x\n",
        "store: redis://u:{}@a.example?x\n",
        "store: redis://u:{}%@a.example\n",
        "store: redis://u:{}\n",
        "store: u:{}@a.example:6379\n",
        "store: sqlite://u:{}@a.example/keys.db\n",
        "store: ./u:{}@a.example/keys.db\n",
        "defaults: {{idempotency: {{store: 'redis://u:{}@a.example'}}}}\n",
        "defaults: {{idempotency: {{store: 'sqlite:u:{}@a.example'}}}}\n",
        "store: {{url: redis://a.example, password: {}}}\n",
        "store: {{url: 'valkey://u:{}@a.example'}}\n",
    ],
)
def test_a_secret_in_clear_is_not_repeated(tmp_path: Path, written: str, wrap: str) -> None:
    assert SECRET not in outcome(tmp_path, written.format(wrap.format(SECRET)).encode())
