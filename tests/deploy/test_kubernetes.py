"""The manifest of a native sidecar."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.deployed import FOLDER, TOKEN, options_of_run, patience, run, settings_of, walk
from tests.test_repo import instructions

FILE = FOLDER / "kubernetes.yaml"
CONFIG_MAP, DEPLOYMENT = yaml.safe_load_all(FILE.read_text())
POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
[SIDECAR] = POD["initContainers"]
MEBIBYTE = 1024 * 1024


def config(folder: Path) -> str:
    """Its configuration, with the secret in *folder*."""
    text: str = CONFIG_MAP["data"]["holdfast.yaml"]
    (folder / "admin-token").write_text(f"{TOKEN}\n")
    return text.replace("/run/secrets/holdfast", str(folder))


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
def test_it_keeps_to_the_schema_of_kubernetes(version: str) -> None:
    said = run("kubernetes-validate", "--strict", "-k", version, str(FILE))
    assert said.count("passed") == 2


def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILE.read_text().replace("restartPolicy: Always", "restartpolicy: Always"))
    with pytest.raises(AssertionError, match="restartpolicy"):
        run("kubernetes-validate", "--strict", str(wrong))


def test_it_is_a_sidecar() -> None:
    assert SIDECAR["restartPolicy"] == "Always"


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_it_is_probed_by_its_own_command_as_in_the_image(probe: str) -> None:
    command = SIDECAR[probe]["exec"]["command"]
    assert command == ["holdfast", "healthcheck"]
    assert "CMD " + str(command).replace("'", '"') in dict(instructions())["HEALTHCHECK"]


def test_it_may_do_nothing_that_it_need_not() -> None:
    assert SIDECAR["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert ("USER", "65532:65532") in instructions()


def test_its_configuration_is_where_it_looks_and_can_be_used(tmp_path: Path) -> None:
    options = options_of_run(SIDECAR["args"])
    assert options["watch"]
    mounts = {mount["mountPath"]: mount["name"] for mount in SIDECAR["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    [file] = options["files"]
    folder, _, name = file.rpartition("/")
    assert volumes[mounts[folder]]["configMap"]["name"] == CONFIG_MAP["metadata"]["name"]
    assert name in CONFIG_MAP["data"]
    assert volumes[mounts["/run/secrets/holdfast"]]["secret"]["secretName"] == "holdfast"
    settings = settings_of(config(tmp_path), tmp_path)
    assert patience(settings) < POD["terminationGracePeriodSeconds"]
    limit = int(SIDECAR["resources"]["limits"]["memory"].removesuffix("Mi")) * MEBIBYTE
    assert settings.limits.replay_memory <= limit / 2
    assert settings.listen[0].host == "127.0.0.1"


async def test_it_serves(tmp_path: Path) -> None:
    await walk(config(tmp_path))
