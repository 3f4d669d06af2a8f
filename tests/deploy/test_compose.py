"""The compose file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.deployed import FOLDER, options_of_run, patience, run, settings_of, walk
from tests.test_repo import instructions

FILE = FOLDER / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
HOLDFAST: dict[str, Any] = COMPOSE["services"]["holdfast"]
APP: dict[str, Any] = COMPOSE["services"]["app"]
SCHEMA = ("--builtin-schema", "vendor.compose-spec")


def config() -> str:
    """Its configuration, as Compose hands it over."""
    content: str = COMPOSE["configs"]["holdfast"]["content"]
    assert "$" not in content.replace("$$", "")
    return content.replace("$$", "$")


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text.removesuffix("s"))


def test_it_keeps_to_the_schema_of_compose_files() -> None:
    run("check-jsonschema", *SCHEMA, str(FILE))


@pytest.mark.deep
def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("read_only:", "readonly:"))
    with pytest.raises(AssertionError, match="readonly"):
        run("check-jsonschema", *SCHEMA, str(wrong))


def test_the_app_waits_until_holdfast_is_healthy_and_shares_its_network() -> None:
    assert APP["depends_on"]["holdfast"]["condition"] == "service_healthy"
    assert APP["network_mode"] == "service:holdfast"


def test_its_health_is_that_of_the_image() -> None:
    _, *command = HOLDFAST["healthcheck"]["test"]
    assert str(command).replace("'", '"') in dict(instructions())["HEALTHCHECK"]


def test_it_may_do_nothing_that_it_need_not() -> None:
    assert HOLDFAST["read_only"]
    assert HOLDFAST["cap_drop"] == ["ALL"]
    assert HOLDFAST["security_opt"] == ["no-new-privileges:true"]


def test_what_is_kept_is_where_the_user_of_the_image_can_write() -> None:
    [(_, folder)] = [volume.split(":") for volume in HOLDFAST["volumes"]]
    assert folder == HOLDFAST["environment"]["HOLDFAST_STATE_DIR"]
    assert ("RUN", f"install -d -m 0700 -o 65532 -g 65532 {folder}") in instructions()


def test_its_configuration_is_where_it_looks_and_can_be_used(tmp_path: Path) -> None:
    [mounted] = HOLDFAST["configs"]
    assert options_of_run(HOLDFAST["command"])["files"] == (mounted["target"],)
    assert mounted["source"] in COMPOSE["configs"]
    settings = settings_of(config(), tmp_path)
    assert patience(settings) < seconds(HOLDFAST["stop_grace_period"])
    assert settings.limits.replay_memory <= int(HOLDFAST["mem_limit"].removesuffix("m")) * 2**20 / 2


async def test_it_serves() -> None:
    await walk(config())
