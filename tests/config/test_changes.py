"""What a reload has changed, and what it warns of."""

from pathlib import Path

import pytest

from proxy.config import Loaded, load
from proxy.config.changes import Change, ChangeKind, changes_between, renamed_routes

BASE = """
admin_token: ${TOKEN:-first}
upstreams:
  a: {urls: ["http://127.0.0.1:1"]}
  b: http://127.0.0.1:2
routes:
  - {name: one, match: /one, upstream: a, retry: true}
  - {name: two, match: POST /two, upstream: b, idempotency: true}
"""
ADDED, REMOVED, CHANGED = ChangeKind.ADDED, ChangeKind.REMOVED, ChangeKind.CHANGED


@pytest.fixture
def loaded(tmp_path: Path) -> "Loader":
    return Loader(tmp_path / "holdfast.yaml")


class Loader:
    """Loads a text, with an environment."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, text: str, **environ: str) -> Loaded:
        self._path.write_text(text)
        return load([self._path], environ)


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        pytest.param("", "", [], id="nothing"),
        pytest.param("retry: true", "retry: {attempts: 3}", [], id="the same in other words"),
        pytest.param(
            "retry: true",
            "retry: {attempts: 5}",
            [Change("routes.one.retry.attempts", CHANGED, 3, 5)],
            id="a value",
        ),
        pytest.param(
            "retry: true",
            "retry: false",
            ["routes.one.retry changed"],
            id="a policy that is switched off",
        ),
        pytest.param(
            "127.0.0.1:2",
            "127.0.0.1:3",
            [Change("upstreams.b.urls", CHANGED, ["http://127.0.0.1:2"], ["http://127.0.0.1:3"])],
            id="a list is one value",
        ),
        pytest.param(
            "routes:",
            "  c: http://127.0.0.1:4\nroutes:\n  - {name: new, match: /new, upstream: c}",
            [Change("upstreams.c", ADDED), Change("routes.new", ADDED)],
            id="what is new",
        ),
        pytest.param(
            "  - {name: one, match: /one, upstream: a, retry: true}\n",
            "",
            [Change("routes.one", REMOVED)],
            id="what is gone",
        ),
        pytest.param(
            "upstreams:",
            "drain_timeout: 10s\nupstreams:",
            [Change("drain_timeout", CHANGED, "30s", "10s")],
            id="a key that was not written",
        ),
        pytest.param(
            "${TOKEN:-first}",
            "${TOKEN:-second}",
            [Change("admin_token", CHANGED, "***", "***")],
            id="a secret, without its value",
        ),
    ],
)
def test_changes(loaded: Loader, old: str, new: str, changes: list[Change | str]) -> None:
    found = changes_between(loaded(BASE), loaded(BASE.replace(old, new)))
    if changes and isinstance(changes[0], str):
        assert [f"{change.path} {change.kind}" for change in found] == changes
    else:
        assert found == changes


def test_the_order_of_routes(loaded: Loader) -> None:
    one, two = BASE.splitlines()[-2:]
    before = loaded(BASE)
    assert changes_between(before, loaded(BASE.replace(f"{one}\n{two}", f"{two}\n{one}"))) == [
        Change("routes", ChangeKind.REORDERED)
    ]
    # A route between them changes no order.
    third = "  - {name: third, match: /third, upstream: a}"
    assert changes_between(before, loaded(BASE.replace(one, f"{one}\n{third}"))) == [
        Change("routes.third", ADDED)
    ]


def test_a_variable_that_has_another_value(loaded: Loader) -> None:
    text = BASE.replace("retry: true", "retry: {attempts: '${N}'}").replace(
        "http://127.0.0.1:2", "http://127.0.0.1:${PORT}"
    )
    before, after = loaded(text, N="3", PORT="2"), loaded(text, N="4", PORT="2")
    assert [change.path for change in changes_between(before, after)] == [
        "routes.one.retry.attempts"
    ]
    after = loaded(text, N="3", PORT="3", TOKEN="other")
    assert {change.path for change in changes_between(before, after)} == {
        "upstreams.b.urls",
        "admin_token",
    }
    assert changes_between(before, loaded(text, N="3", PORT="2")) == []


def test_no_secret_is_in_a_change(loaded: Loader) -> None:
    headers = "headers: {request: {set: {Authorization: 'Bearer ${KEY}'}}}"
    text = BASE.replace("retry: true", headers)
    before, after = loaded(text, KEY="hunter2"), loaded(text, KEY="hunter3")
    (change,) = changes_between(before, after)
    assert change.path == "routes.one.headers.request.set.Authorization"
    assert "hunter" not in repr(change) + repr(before.hidden)
    assert "hunter" not in str(change.to_json())


@pytest.mark.parametrize(
    ("old", "new", "warned"),
    [
        pytest.param("name: two", "name: pay", True, id="renamed"),
        pytest.param(
            "name: two, match: POST /two, upstream: b",
            "name: pay, match: POST /two, upstream: a",
            True,
            id="and sent elsewhere",
        ),
        pytest.param("name: one", "name: first", False, id="a route without keys"),
        pytest.param("idempotency: true", "idempotency: false", False, id="switched off"),
        pytest.param(
            "name: two, match: POST /two", "name: pay, match: POST /pay", False, id="another route"
        ),
    ],
)
def test_a_route_with_keys_that_is_renamed(
    loaded: Loader, old: str, new: str, *, warned: bool
) -> None:
    found = renamed_routes(loaded(BASE), loaded(BASE.replace(old, new)))
    if not warned:
        assert found == []
        return
    (line,) = found
    assert line.startswith("routes.pay: warning: it was called two, and idempotency keys go by the")
    assert line.endswith("write name: two to prevent that")
