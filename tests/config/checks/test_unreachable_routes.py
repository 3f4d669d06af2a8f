"""Routes that no request gets to, because others before them take all. » marks the position."""

from collections.abc import Callable

import pytest

TOP = "upstreams: {a: 'http://127.0.0.1:1'}\nroutes:\n"


def file_of(*matches: str) -> str:
    """A file with a route for each of *matches*, called r0, r1, …; lines 3, 4, …"""
    rows = [
        f"  - {{name: r{number}, match: {match}, upstream: a}}\n"
        for number, match in enumerate(matches)
    ]
    return TOP + "".join(rows)


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        pytest.param(
            ("/**", "/v1/**"),
            {1: "r0 (line 3) matches first, move it above line 3"},
            id="21 a wide one before",
        ),
        pytest.param(
            ("/**", "/v1/**", "/v2/**", "GET /v3"),
            dict.fromkeys((1, 2, 3), "r0 (line 3) matches first, move it above line 3"),
            id="each of several is named",
        ),
        pytest.param(
            ("/v1", "/v1"),
            {1: "r0 (line 3) matches the same requests, remove one of them"},
            id="a duplicate",
        ),
        pytest.param(
            ("{path: [/a, /b], methods: [GET, POST]}", "{path: [/b, /a], methods: [POST, GET]}"),
            {1: "r0 (line 3) matches the same requests, remove one of them"},
            id="a duplicate in another order",
        ),
        pytest.param(
            ("GET /x", "POST /x", "{path: /x, methods: [GET, POST]}"),
            {
                2: "r0 (line 3) and routes.r1 (line 4) match first between them, move it above "
                "line 3, or remove it"
            },
            id="two methods, each taken by another",
        ),
        pytest.param(
            ("/a/**", "/b/**", "/c", "{path: [/a/x, /b/y, /c]}"),
            {
                3: "r0 (line 3), routes.r1 (line 4) and routes.r2 (line 5) match first between "
                "them, move it above line 3, or remove it"
            },
            id="three paths",
        ),
        pytest.param(
            (
                "{path: /x, host: [a.example]}",
                "{path: /x, host: ['*.b.example']}",
                "{path: /x, host: [a.example, x.b.example]}",
            ),
            {
                2: "r0 (line 3) and routes.r1 (line 4) match first between them, move it above "
                "line 3, or remove it"
            },
            id="two hosts",
        ),
    ],
)
def test_never_reached(
    lines: Callable[..., list[str]], matches: tuple[str, ...], expected: dict[int, str]
) -> None:
    assert lines(file_of(*matches)) == [
        f"holdfast.yaml:{number + 3}:6: routes.r{number}: warning: never reached, routes.{text}"
        for number, text in expected.items()
    ]


@pytest.mark.parametrize(
    "matches",
    [
        ("GET /x", "POST /x", "{path: /x, methods: [GET, POST, PUT]}"),
        ("GET /x", "POST /x", "/x"),
        ("GET /a", "POST /b", "{path: [/a, /b], methods: [GET, POST]}"),
        ("{path: /x, headers: {X-A: '1'}}", "/x"),
        ("/a/*", "/a/**"),
    ],
)
def test_some_request_gets_there(lines: Callable[..., list[str]], matches: tuple[str, ...]) -> None:
    assert [line for line in lines(file_of(*matches)) if "never reached" in line] == []


@pytest.mark.parametrize(
    ("match", "near"),
    [("»PSOT /x", "POST"), ("{path: /x, methods: [GET, »DELET]}", "DELETE")],
)
def test_a_method_that_is_nearly_one(only_line: Callable[..., None], match: str, near: str) -> None:
    written = match.partition("»")[2].partition(" ")[0].strip("]}")
    path = "match.methods[1]" if match.startswith("{") else "match"
    only_line(
        f"{TOP}  - name: r\n    match: {match}\n    upstream: a\n",
        f"routes.r.{path}: warning: {written} is no method of HTTP, did you mean {near}?",
    )


def test_other_methods_are_methods(lines: Callable[..., list[str]]) -> None:
    assert (
        lines(f"{TOP}  - {{match: {{methods: [PURGE, M-SEARCH, PROPFIND]}}, upstream: a}}\n") == []
    )
