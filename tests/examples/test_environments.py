"""One base file, a file for each environment, and secrets from files."""

import shutil
from pathlib import Path

import pytest

from proxy.config import ConfigError, load
from proxy.policy.settings.store import RedisSettings
from tests.examples.example import FOLDER, Example
from tests.support import ScriptedUpstream

TOKEN = "a-very-secret-token"
PASSWORD = "a-very-secret-password"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example with the secrets that an environment would mount."""
    copy = tmp_path / "environments"
    shutil.copytree(FOLDER / "environments", copy)
    (copy / "secrets").mkdir()
    (copy / "secrets" / "crm-token").write_text(f"{TOKEN}\n")
    (copy / "secrets" / "redis-password").write_text(f"{PASSWORD}\n")
    return copy


@pytest.mark.parametrize("environment", ["staging.yaml", "production.yaml"])
def test_each_is_read_after_the_base_without_a_warning(folder: Path, environment: str) -> None:
    loaded = load([folder / "base.yaml", folder / environment], {})
    assert loaded.warnings == ()
    [crm] = loaded.settings.routes
    assert crm.strip_prefix == "/crm"


def test_production_goes_over_what_it_names_and_keeps_the_rest(folder: Path) -> None:
    settings = load([folder / "base.yaml", folder / "production.yaml"], {}).settings
    [route], [upstream] = settings.routes, settings.upstreams
    assert route.retry is not None
    assert (route.timeout, route.retry.attempts, route.retry.attempt_timeout) == (60, 5, 10)
    assert upstream.connect_timeout == 2
    assert upstream.breaker is not None
    assert isinstance(settings.store, RedisSettings)
    assert settings.store.password == PASSWORD


def test_a_secret_that_is_not_there_is_a_fault(folder: Path) -> None:
    (folder / "secrets" / "crm-token").unlink()
    with pytest.raises(ConfigError, match="crm-token"):
        load([folder / "base.yaml", folder / "staging.yaml"], {})


async def test_the_token_reaches_the_upstream_and_nobody_else(folder: Path) -> None:
    example = Example("base.yaml", "staging.yaml", folder=folder)
    async with (
        ScriptedUpstream() as crm,
        example.running(f"upstreams: {{crm: {{urls: [{crm.url}]}}}}") as proxy,
    ):
        got = await proxy.get("/crm/customers/7", "Authorization: Bearer of-the-caller")
        assert got.status == 200
        [seen] = crm.requests
        assert (seen.target, seen.get("Authorization")) == ("/customers/7", f"Bearer {TOKEN}")
        shown = [await proxy.admin("GET", path) for path in ("/config", "/status", "/metrics")]
        assert not any(TOKEN.encode() in page.body for page in shown)
        assert TOKEN not in str(await proxy.logged())
