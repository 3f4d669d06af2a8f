"""Edits of header fields. » marks the position to be reported."""

from collections.abc import Callable

import pytest

from proxy.http.fields import HOP_BY_HOP

FILE = """\
upstreams: {{a: "http://127.0.0.1:1"}}
routes:
  - name: api
    upstream: a
    match: /**
    headers: {}
"""


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "{request: {set: {»Host: a}}}",
            (
                "request.set.Host: Host cannot be edited, write host: preserve or host: upstream "
                "in the upstream"
            ),
        ),
        (
            "{request: {remove: [»Content-Length]}}",
            (
                "request.remove[0]: Content-Length cannot be edited, it follows from the body, "
                "remove it here"
            ),
        ),
        (
            "{response: {set: {»Via: a}}}",
            (
                "response.set.Via: Via cannot be edited, it keeps requests from going in circles, "
                "remove it here"
            ),
        ),
        (
            "{request: {set: {»Upgrade: websocket}}}",
            (
                "request.set.Upgrade: Upgrade cannot be edited, write upgrades: [websocket] in the "
                "route"
            ),
        ),
        (
            "{request: {remove: [»Keep-Alive]}}",
            (
                "request.remove[0]: Keep-Alive cannot be edited, it belongs to one connection, "
                "remove it here"
            ),
        ),
        (
            "{request: {set: {»'X:Y': a}}}",
            'request.set.X:Y: "X:Y" is no name of a header, write X-Tenant (say)',
        ),
        (
            '{request: {set: {X-A: »"a\\r\\nX-Admin: 1"}}}',
            (
                "request.set.X-A: a header's value is one line of Latin-1 text without spaces "
                "around it, write one"
            ),
        ),
        (
            '{request: {set: {X-A: »"a\\0b"}}}',
            (
                "request.set.X-A: a header's value is one line of Latin-1 text without spaces "
                "around it, write one"
            ),
        ),
        (
            "{request: {set: {X-A: »' a'}}}",
            (
                "request.set.X-A: a header's value is one line of Latin-1 text without spaces "
                "around it, write one"
            ),
        ),
        (
            "{request: {set: {X-A: »€}}}",
            (
                "request.set.X-A: a header's value is one line of Latin-1 text without spaces "
                "around it, write one"
            ),
        ),
        (
            "{request: {set: {X-A: »~}}}",
            'request.set.X-A: there is no value, write "text" (say)',
        ),
        ("{»reqest: {}}", "reqest: unknown key, did you mean request?"),
    ],
)
def test_what_cannot_be_edited(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(FILE.format(marked), f"routes.api.headers.{expected}")


@pytest.mark.parametrize("name", sorted(name.decode() for name in HOP_BY_HOP))
def test_no_field_of_a_single_connection_can_be_set(
    lines: Callable[..., list[str]], name: str
) -> None:
    (line,) = lines(FILE.format(f"{{request: {{set: {{{name}: a}}}}}}"))
    assert f"{name} cannot be edited, " in line


@pytest.mark.parametrize(
    ("header", "is_secret"),
    [
        ("Authorization: abc", True),
        ("Cookie: a=b", True),
        ("X-API-Key: abc", True),
        ("X-Apikey: abc", True),
        ("Stripe-Signature: abc", True),
        ("X-Auth-Token: abc", True),
        ("X-Anything: Bearer abc", True),
        ("Idempotency-Key: abc", False),
        ("X-Author: abc", False),
        ("X-Monkey: abc", False),
        ("Authorization: ''", False),
    ],
)
def test_what_looks_like_a_secret(
    lines: Callable[..., list[str]], header: str, *, is_secret: bool
) -> None:
    found = lines(FILE.format(f"{{request: {{set: {{{header}}}}}}}"))
    assert len(found) == is_secret
    assert all("a secret stands in the file" in line and "abc" not in line for line in found)
