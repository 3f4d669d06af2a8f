import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import ConfigError, Loaded, load
from proxy.policy.settings import (
    Limits,
    Listen,
    Match,
    Origin,
    RouteSettings,
    Settings,
    UpstreamSettings,
)

SECRETS = {"TOKEN": "s3cret-token", "KEY": "s3cret-key", "URL": "https://a.example/s3cret-hook"}


def test_what_is_not_written_is_what_the_settings_say(
    loaded: Callable[..., Loaded], folder: Path
) -> None:
    found = loaded("upstreams: {a: 'http://127.0.0.1:1'}\nroutes: [{match: /, upstream: a}]\n")
    assert found.settings == Settings(
        listen=(Listen("127.0.0.1", 8080),),
        admin=Listen("127.0.0.1", 9901),
        limits=Limits(),
        state_dir=str(folder / "state"),
        upstreams=(UpstreamSettings("a", (Origin("http", "127.0.0.1", 1),)),),
        routes=(RouteSettings("/", Match(paths=("/",)), "a"),),
    )


def test_keys_with_nothing_below_them_are_as_good_as_absent(
    loaded: Callable[..., Loaded], folder: Path
) -> None:
    found = loaded("limits:\nupstreams:\ndefaults:\npolicies:\nroutes:\ntrusted_proxies:\n")
    assert found.settings == Settings(
        listen=(Listen("127.0.0.1", 8080),),
        admin=Listen("127.0.0.1", 9901),
        state_dir=str(folder / "state"),
    )


def test_two_files_that_say_the_same_are_equal(loaded: Callable[..., Loaded]) -> None:
    one = loaded("upstreams: {a: 'http://127.0.0.1:1'}\nroutes: [{match: /, upstream: a}]\n")
    other = loaded(
        "routes:\n- match: {path: [/]}\n  upstream: a\n  timeout: 30000ms\n"
        "upstreams:\n  a: {urls: ['http://127.0.0.1:1/']}\n"
    )
    assert one.settings == other.settings


def test_the_effective_configuration_shows_no_secret(loaded: Callable[..., Loaded]) -> None:
    found = loaded(
        """\
admin_token: ${TOKEN}
listen: 127.0.0.1:${PORT:-8080}
upstreams:
  hook: ${URL}
  plain: http://127.0.0.1:1/base
policies:
  signed: {headers: {request: {set: {X-Mine: "${KEY}", X-Api-Key: in-clear, X-Plain: seen}}}}
routes:
  - name: hook
    match: {path: "/hook/${KEY}", headers: {X-Tenant: "${KEY}"}}
    upstream: hook
    policy: signed
    timeout: ${T:-90s}
  - {match: /**, upstream: plain}
""",
        SECRETS,
    )
    shown = found.effective
    assert json.loads(json.dumps(shown)) == shown
    assert "s3cret" not in json.dumps(shown)
    assert "in-clear" not in json.dumps(shown)
    assert shown["admin_token"] == "***"
    assert shown["listen"] == [{"address": "127.0.0.1:8080"}]
    assert shown["upstreams"]["hook"]["urls"] == ["https://a.example/***"]
    assert shown["upstreams"]["plain"]["urls"] == ["http://127.0.0.1:1/base"]
    assert "policies" not in shown
    hook = shown["routes"][0]
    assert "policy" not in hook
    assert hook["timeout"] == "1m30s"
    assert hook["match"] == {"path": ["***"], "headers": {"X-Tenant": "***"}}
    assert hook["headers"]["request"]["set"] == {
        "X-Mine": "***",
        "X-Api-Key": "***",
        "X-Plain": "seen",
    }
    assert shown["limits"]["header_bytes"] == "64KiB"


def test_what_is_in_force_can_be_written_to_a_file(
    loaded: Callable[..., Loaded],
) -> None:
    found = loaded(
        "upstreams: {a: 'http://127.0.0.1:1'}\n"
        "defaults: {timeout: none, headers: {request: {set: {X-A: b}}}}\n"
        "routes: [{match: POST /x, upstream: a}, {match: /**, upstream: a}]\n"
    )
    # JSON is YAML.
    assert loaded(json.dumps(found.effective)).settings == found.settings


FILES = """\
admin_token: ${file:token}
listen: {address: "127.0.0.1:1", tls: {cert: a.pem, key: a.key}}
upstreams: {a: {urls: ["https://a.example"], tls: {ca: ca.pem}}}
routes: [{match: /, upstream: a}]
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            FILES,
            ["holdfast.yaml", "token", "a.pem", "a.key", "ca.pem"],
            id="every file that it names, though none is there",
        ),
        pytest.param("{", ["holdfast.yaml"], id="the file itself, though it makes no sense"),
    ],
)
def test_whoever_watches_is_told_of_every_file_even_if_loading_fails(
    folder: Path, text: str, told: list[str]
) -> None:
    (folder / "holdfast.yaml").write_text(text)
    read: list[Path] = []
    with pytest.raises(ConfigError):
        load(["holdfast.yaml"], {}, on_read=read.append)
    assert read == [folder / name for name in told]


def test_whoever_watches_is_told_before_a_file_is_read(folder: Path) -> None:
    rest = "upstreams: {a: 'http://127.0.0.1:1'}\nroutes: [{match: /, upstream: a}]\n"

    def write(path: Path) -> None:
        path.write_text(
            "secret" if path.name == "token" else f"admin_token: ${{file:token}}\n{rest}"
        )

    assert load(["holdfast.yaml"], {}, on_read=write).settings.admin_token == "secret"
    assert (folder / "token").exists()


def test_an_upstream_in_place_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load([], {}, upstream="http://127.0.0.1:9000/a$b", listen=["127.0.0.1:1"])
    (route,) = loaded.settings.routes
    (upstream,) = loaded.settings.upstreams
    assert (route.name, route.upstream) == ("all", upstream.name)
    assert [str(origin) for origin in upstream.origins] == ["http://127.0.0.1:9000/a$b"]
    assert (route.retry, route.throttle, route.idempotency) == (None, None, None)
    assert loaded.settings.listen[0].port == 1
    assert Path(loaded.settings.state_dir) == tmp_path / "state"
    assert (loaded.report.files, loaded.warnings) == ((), ())


def test_an_upstream_that_is_none() -> None:
    with pytest.raises(ConfigError) as error:
        load([], {}, upstream="127.0.0.1:9000")
    assert str(error.value) == (
        '--upstream: "127.0.0.1:9000" has no scheme, write http://127.0.0.1:9000 or '
        "https://127.0.0.1:9000"
    )
