"""Which value counts when several places give one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import ConfigError, Loaded, load
from proxy.http.header_edits import HeaderEdits
from proxy.policy.settings import RouteSettings

LAYERS = """\
upstreams: {a: "http://127.0.0.1:1"}
defaults:
  timeout: 1s
  idle_timeout: 1s
  upgrades: []
  headers: {request: {set: {X-A: default, X-B: default}, remove: [X-R]}, response: {remove: [X-S]}}
policies:
  slow: {timeout: 2s, idle_timeout: 2s, headers: {request: {set: {x-b: slow}}}}
  large: {max_body: 1GiB, idle_timeout: 3s}
routes:
  - {name: plain, match: /plain, upstream: a}
  - {name: one, match: /one, upstream: a, policy: slow}
  - {name: two, match: /two, upstream: a, policy: [slow, large]}
  - {name: turned, match: /turned, upstream: a, policy: [large, slow]}
  - name: own
    match: /own
    upstream: a
    policy: [slow, large]
    timeout: none
    upgrades: [websocket]
    headers: {request: {set: {X-C: own}, remove: []}}
"""


def routes(loaded: Callable[..., Loaded]) -> dict[str, RouteSettings]:
    return {route.name: route for route in loaded(LAYERS).settings.routes}


@pytest.mark.parametrize(
    ("route", "key", "value"),
    [
        pytest.param("plain", "timeout", 1, id="defaults go over the built-in"),
        pytest.param("plain", "max_body", None, id="what nobody says is built in"),
        pytest.param("one", "timeout", 2, id="a policy goes over defaults"),
        pytest.param("one", "upgrades", (), id="defaults show through"),
        pytest.param("two", "timeout", 2, id="what the later policy does not say is the earlier's"),
        pytest.param("two", "idle_timeout", 3, id="the later policy wins"),
        pytest.param("turned", "idle_timeout", 2, id="and it is their order in the route"),
        pytest.param("own", "timeout", None, id="the route goes over all, even with none"),
        pytest.param("own", "upgrades", ("websocket",), id="lists replace"),
        pytest.param("own", "max_body", 2**30, id="and policies show through"),
    ],
)
def test_key_by_key(loaded: Callable[..., Loaded], route: str, key: str, value: object) -> None:
    assert getattr(routes(loaded)[route], key) == value


def test_headers_to_set_merge_by_name_and_lists_replace(loaded: Callable[..., Loaded]) -> None:
    own = routes(loaded)["own"]
    assert own.request_headers == HeaderEdits(
        set=(("X-A", "default"), ("x-b", "slow"), ("X-C", "own")), remove=()
    )
    assert own.response_headers == HeaderEdits(remove=("x-s",))


def test_files_merge_mappings_and_replace_the_rest(folder: Path) -> None:
    (folder / "base.yaml").write_text(
        "listen: [127.0.0.1:1, 127.0.0.1:2]\n"
        "limits: {connections: 5, keepalive: 7s}\n"
        "upstreams: {a: 'http://127.0.0.1:1', b: 'http://127.0.0.1:2'}\n"
        "routes: [{name: base, match: /**, upstream: a}]\n"
    )
    (folder / "site.yaml").write_text(
        "listen: 127.0.0.1:4\n"
        "limits: {connections: 6}\n"
        "upstreams: {b: {urls: ['http://127.0.0.1:3']}}\n"
        "routes: [{name: site, match: /a, upstream: a}, {name: b, match: /b, upstream: b}]\n"
    )
    found = load(["base.yaml", folder / "site.yaml"], {})
    settings = found.settings
    assert [str(listen) for listen in settings.listen] == ["127.0.0.1:4"]
    assert (settings.limits.connections, settings.limits.keepalive) == (6, 7)
    assert [str(upstream.origins[0]) for upstream in settings.upstreams] == [
        "http://127.0.0.1:1",
        "http://127.0.0.1:3",
    ]
    assert [route.name for route in settings.routes] == ["site", "b"]


def test_a_fault_is_shown_in_the_file_where_it_stands(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "base.yaml").write_text("limits: {connections: 0}\nlisten: 1\nlisten: 2\n")
    (folder / "sub/site.yaml").write_text(
        "admin_token: ${file:token}\n\nlimits:\n  keepalive: 5\nroutes: []\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(["base.yaml", "sub/site.yaml"], {}, listen=["127.0.0.1:0"], admin="80")
    assert str(caught.value) == (
        "--admin: 80 has no address, write 127.0.0.1:80, or 0.0.0.0:80 to be reachable from "
        "outside\n"
        "base.yaml:1:23: limits.connections: 0 is out of range, write a number from 1 to 1000000\n"
        "base.yaml:3:1: listen: already set at line 2, remove one of them\n"
        "sub/site.yaml:1:14: admin_token: cannot read token (no such file), mount it or correct "
        "the path\n"
        "sub/site.yaml:4:14: limits.keepalive: 5 has no unit, write 5s\n"
        "sub/site.yaml:5:1: routes: warning: there are none, so every request gets 404, write one "
        "with match and upstream"
    )


def test_options_go_over_every_file(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text("listen: 1\nadmin: 0.0.0.0:5\nroutes: []\n")
    settings = load(
        ["holdfast.yaml"], {}, listen=["127.0.0.1:7", "unix:/run/a"], admin="false"
    ).settings
    assert [str(listen) for listen in settings.listen] == ["127.0.0.1:7", "unix:/run/a"]
    assert settings.admin is None


def test_what_a_policy_does_to_a_route_is_shown_in_the_policy(
    only_line: Callable[..., None],
) -> None:
    only_line(
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "defaults: {strip_prefix: /elsewhere}\n"
        "policies: {old: {strip_prefix: »/v1}}\n"
        "routes:\n"
        "  - {name: new, match: /v2/**, upstream: a, policy: old}\n"
        "  - {name: other, match: /v3/**, upstream: a}\n",
        "policies.old.strip_prefix: warning: no path of routes.new begins with /v1, so nothing is "
        "stripped, correct it or remove it",
    )
