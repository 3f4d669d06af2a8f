"""Each value that is in force says where it was written, and by whom."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import Loaded, Setting, load_with_origins

LAYERS = """\
upstreams:
  a: http://127.0.0.1:1
  b:
    urls: [http://127.0.0.1:2]
    breaker: {probes: 2}
defaults:
  timeout: 9s
  retry: true
  headers: {request: {set: {X-A: default, X-B: default}}}
policies:
  slow:
    retry: {backoff: {base: 1s, max: 4s}}
    throttle: 10/s
  slow.b: {timeout: 20s}
routes:
  - match: GET /plain
    upstream: a
  - name: own
    match: /own
    upstream: b
    policy: [slow, slow.b]
    retry: 5
    throttle: false
    headers: {request: {set: {x-b: own}}}
"""

Found = tuple[object, str, str]
"""Value, where, who."""


def by_key(settings: list[Setting]) -> dict[str, Found]:
    return {".".join(s.keys): (s.value, s.where, s.writer) for s in settings}


def of_route(folder: Path, name: str, *texts: str) -> dict[str, Found]:
    names = ["holdfast.yaml", "site.yaml"][: len(texts)]
    for file, text in zip(names, texts, strict=True):
        (folder / file).write_text(text)
    return by_key(load_with_origins(names, {})[1].of_route(name))


@pytest.mark.parametrize(
    ("route", "key", "found"),
    [
        pytest.param("/plain", "buffer", ("1MiB", "built-in", ""), id="nobody says it"),
        pytest.param("/plain", "timeout", ("9s", "holdfast.yaml:7", "defaults"), id="defaults"),
        pytest.param(
            "/plain", "retry", (True, "holdfast.yaml:8", "defaults"), id="what switches it on"
        ),
        pytest.param("/plain", "retry.attempts", (3, "built-in", ""), id="and what that implies"),
        pytest.param("/plain", "throttle", (False, "built-in", ""), id="off if nobody says it"),
        pytest.param(
            "/plain", "match.methods", (["GET"], "holdfast.yaml:16", "routes[0]"), id="a short form"
        ),
        pytest.param(
            "/plain", "name", ("/plain", "holdfast.yaml:16", "routes[0]"), id="named by its path"
        ),
        pytest.param(
            "own", "timeout", ("20s", "holdfast.yaml:14", "policies.slow.b"), id="the later policy"
        ),
        pytest.param(
            "own",
            "retry.backoff.base",
            ("1s", "holdfast.yaml:12", "policies.slow"),
            id="deep in a policy",
        ),
        pytest.param(
            "own", "retry.attempts", (5, "holdfast.yaml:22", "routes.own"), id="the route itself"
        ),
        pytest.param(
            "own", "throttle", (False, "holdfast.yaml:23", "routes.own"), id="switched off"
        ),
        pytest.param(
            "own",
            "headers.request.set.X-A",
            ("default", "holdfast.yaml:9", "defaults"),
            id="a table merges by name",
        ),
        pytest.param(
            "own",
            "headers.request.set.x-b",
            ("own", "holdfast.yaml:24", "routes.own"),
            id="each name with its own place",
        ),
    ],
)
def test_value_of_a_route(folder: Path, route: str, key: str, found: Found) -> None:
    assert of_route(folder, route, LAYERS)[key] == found


def test_what_is_switched_off_has_no_keys(folder: Path) -> None:
    assert not [key for key in of_route(folder, "own", LAYERS) if key.startswith("throttle.")]


def test_a_second_file(folder: Path) -> None:
    site = "defaults: {timeout: 3s}\nupstreams: {a: 'http://127.0.0.1:9'}\n"
    found = of_route(folder, "/plain", LAYERS, site)
    assert found["timeout"] == ("3s", "site.yaml:1", "defaults")
    assert found["retry"] == (True, "holdfast.yaml:8", "defaults")
    upstream = by_key(load_with_origins(["holdfast.yaml", "site.yaml"], {})[1].of_upstream("a"))
    assert upstream["urls"] == (["http://127.0.0.1:9"], "site.yaml:2", "upstreams.a")


def test_an_upstream(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(LAYERS)
    found = by_key(load_with_origins(["holdfast.yaml"], {})[1].of_upstream("b"))
    assert found["breaker"] == (True, "holdfast.yaml:5", "upstreams.b")
    assert found["breaker.probes"] == (2, "holdfast.yaml:5", "upstreams.b")
    assert found["breaker.window"] == ("10s", "built-in", "")
    assert found["budget"] == (True, "built-in", "")


def test_a_base_that_only_a_shorter_max_implies(folder: Path) -> None:
    short = LAYERS.replace("base: 1s, max: 4s", "max: 50ms")
    found = of_route(folder, "own", short)["retry.backoff.base"]
    assert found == ("50ms", "holdfast.yaml:12", "policies.slow")


def test_secrets_are_masked(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "routes:\n"
        "  - match: /**\n"
        "    upstream: a\n"
        "    headers: {request: {set: {Authorization: '${TOKEN}', X-Mode: '${MODE}'}}}\n"
    )
    origins = load_with_origins(["holdfast.yaml"], {"TOKEN": "Bearer s3cret", "MODE": "m0de"})[1]
    settings = origins.of_route("/**")
    assert by_key(settings)["headers.request.set.Authorization"][0] == "***"
    assert "s3cret" not in repr(settings)
    assert "m0de" not in repr(settings)


def test_values_are_those_of_the_effective_configuration(
    folder: Path, loaded: Callable[..., Loaded]
) -> None:
    effective = loaded(LAYERS).effective
    (own,) = (route for route in effective["routes"] if route["name"] == "own")
    for setting in load_with_origins([str(folder / "holdfast.yaml")], {})[1].of_route("own"):
        if setting.is_section or setting.keys == ("policy",):
            continue
        value = own
        for key in setting.keys:
            value = value[key]
        assert value == setting.value
