"""The native sidecar: as a manifest, and as what the component adds to an app."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.deployed import (
    FOLDER,
    NO_RIGHTS,
    TOKEN,
    every_version,
    options_of_run,
    patience,
    run,
    settings_of,
    walk,
)
from tests.docs.kit.pages import blocks_of
from tests.support import ScriptedUpstream, eventually, subprocess_proxy
from tests.support.proxies import ROOT
from tests.support.tools import tool
from tests.test_repo import instructions

FILE = FOLDER / "kubernetes.yaml"
EXAMPLE = FOLDER / "kustomize" / "example"
PROMETHEUS = FOLDER.parent / "prometheus" / "prometheus.yaml"
PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
SECRETS = "/run/secrets/holdfast"
MEBIBYTE = 1024 * 1024
API_TOKEN = "a-token-of-the-api"


class Deployed:
    """What is applied to a cluster: a Deployment with the sidecar, and what belongs to it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        resources: list[dict[str, Any]] = list(yaml.safe_load_all(file.read_text()))
        self.resources = {resource["kind"]: resource for resource in resources}
        assert len(self.resources) == len(resources)
        self.template: dict[str, Any] = self.resources["Deployment"]["spec"]["template"]
        self.pod: dict[str, Any] = self.template["spec"]
        self.sidecar: dict[str, Any] = self.pod["initContainers"][0]

    def config(self, folder: Path) -> str:
        """Its configuration, with the secrets in *folder*."""
        text: str = self.resources["ConfigMap"]["data"]["holdfast.yaml"]
        (folder / "admin-token").write_text(f"{TOKEN}\n")
        (folder / "api-token").write_text(f"{API_TOKEN}\n")
        return text.replace(SECRETS, str(folder))


def build(folder: Path) -> str:
    return run(tool("kustomize"), "build", str(folder))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, as kustomize builds it with the component."""
    file = tmp_path_factory.mktemp("kustomize") / "built.yaml"
    file.write_text(build(EXAMPLE))
    return file


@pytest.fixture(params=["manifest", "component"])
def deployed(request: pytest.FixtureRequest) -> Deployed:
    return Deployed(FILE if request.param == "manifest" else request.getfixturevalue("built"))


@every_version
def test_it_keeps_to_the_schema_of_kubernetes(deployed: Deployed, version: str) -> None:
    said = run("kubernetes-validate", "--strict", "-k", version, str(deployed.file))
    known = deployed.resources.keys() - {"PodMonitor"}  # which is not Kubernetes's own
    assert said.count("passed") == len(known)


@pytest.mark.deep
def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(FILE.read_text().replace("restartPolicy: Always", "restartpolicy: Always"))
    with pytest.raises(AssertionError, match="restartpolicy"):
        run("kubernetes-validate", "--strict", str(wrong))


def test_it_is_a_sidecar_that_starts_before_all_others(deployed: Deployed) -> None:
    assert deployed.sidecar["name"] == "holdfast"
    assert deployed.sidecar["restartPolicy"] == "Always"
    assert deployed.pod["containers"][0]["name"] == "app"


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")],
)
def test_it_is_probed_where_its_admin_listener_is(
    deployed: Deployed, probe: str, path: str, tmp_path: Path
) -> None:
    asked = deployed.sidecar[probe]["httpGet"]
    assert asked["path"] == path
    ports = {port["name"]: port["containerPort"] for port in deployed.sidecar["ports"]}
    admin = settings_of(deployed.config(tmp_path), tmp_path).admin
    assert admin is not None
    # The kubelet comes from outside of the pod.
    assert (admin.host, admin.port) == ("0.0.0.0", ports[asked["port"]])  # noqa: S104 - is only read


def test_it_may_do_nothing_that_it_need_not(deployed: Deployed) -> None:
    context = deployed.pod.get("securityContext", {}) | deployed.sidecar["securityContext"]
    assert context == NO_RIGHTS
    assert ("USER", "65532:65532") in instructions()


def test_its_configuration_is_where_it_looks_and_can_be_used(
    deployed: Deployed, tmp_path: Path
) -> None:
    options = options_of_run(deployed.sidecar["args"])
    assert options["watch"]
    # Of a single file that is mounted (subPath) a change would never be seen.
    assert all("subPath" not in mount for mount in deployed.sidecar["volumeMounts"])
    mounts = {mount["mountPath"]: mount["name"] for mount in deployed.sidecar["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in deployed.pod["volumes"]}
    [file] = options["files"]
    folder, _, name = file.rpartition("/")
    config_map = deployed.resources["ConfigMap"]
    assert volumes[mounts[folder]]["configMap"]["name"] == config_map["metadata"]["name"]
    assert name in config_map["data"]
    assert volumes[mounts[SECRETS]]["secret"]["secretName"] == "holdfast"
    settings = settings_of(deployed.config(tmp_path), tmp_path)
    assert patience(settings) < deployed.pod["terminationGracePeriodSeconds"]
    limit = int(deployed.sidecar["resources"]["limits"]["memory"].removesuffix("Mi")) * MEBIBYTE
    assert settings.limits.replay_memory <= limit / 2
    assert settings.listen[0].host == "127.0.0.1"


def test_prometheus_finds_it(deployed: Deployed) -> None:
    [wanted] = [
        rule["regex"]
        for job in yaml.safe_load(PROMETHEUS.read_text())["scrape_configs"]
        for rule in job.get("relabel_configs", ())
        if rule["source_labels"] == ["__meta_kubernetes_pod_container_port_name"]
    ]
    ports = {port["name"]: port["containerPort"] for port in deployed.sidecar["ports"]}
    assert ports[wanted] == 9901
    assert "annotations" not in deployed.template["metadata"], "those are the app's own"


async def test_it_serves(deployed: Deployed, tmp_path: Path) -> None:
    await walk(deployed.config(tmp_path))


def test_the_page_shows_the_configuration_of_the_manifest() -> None:
    [shown] = [block for block in blocks_of(PAGE) if block.file == "holdfast.yaml"]
    deployed = Deployed(FILE).resources["ConfigMap"]["data"]["holdfast.yaml"]
    assert yaml.safe_load(shown.text) == yaml.safe_load(deployed)


# The component.


def test_the_example_can_be_applied_without_the_prometheus_operator(built: Path) -> None:
    assert Deployed(built).resources.keys() == {"ConfigMap", "Deployment", "NetworkPolicy"}


def test_the_pod_monitor_means_the_pods_of_the_sidecar(tmp_path: Path) -> None:
    folder = tmp_path / "kustomize"
    shutil.copytree(EXAMPLE.parent, folder)
    file = folder / "example" / "kustomization.yaml"
    text = file.read_text()
    assert "  # - ../pod-monitor  # with the Prometheus operator\n" in text
    file.write_text(text.replace("# - ../pod-monitor", "- ../pod-monitor"))
    built = tmp_path / "built.yaml"
    built.write_text(build(folder / "example"))
    deployed = Deployed(built)
    monitor = deployed.resources["PodMonitor"]["spec"]
    assert (
        monitor["selector"]["matchLabels"].items()
        <= deployed.template["metadata"]["labels"].items()
    )
    [endpoint] = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in deployed.sidecar["ports"]}
    assert endpoint["path"] == "/metrics"


def test_the_network_policy_lets_prometheus_alone_to_the_admin_listener(built: Path) -> None:
    deployed = Deployed(built)
    policy = deployed.resources["NetworkPolicy"]["spec"]
    selected = policy["podSelector"]["matchLabels"].items()
    assert selected <= deployed.template["metadata"]["labels"].items()
    app, prometheus = policy["ingress"]
    assert "from" not in app
    assert [port["port"] for port in app["ports"]] == [
        port["containerPort"] for port in deployed.pod["containers"][0]["ports"]
    ]
    assert [port["port"] for port in prometheus["ports"]] == [
        port["containerPort"] for port in deployed.sidecar["ports"]
    ]
    assert prometheus["from"]


def test_it_is_the_sidecar_of_the_manifest(built: Path) -> None:
    component, manifest = Deployed(built), Deployed(FILE)
    for name in ("args", "env", "ports", "resources", "volumeMounts"):
        assert component.sidecar[name] == manifest.sidecar[name], name
    assert component.pod["volumes"] == manifest.pod["volumes"]


def test_a_patch_of_one_s_own_has_the_last_word(tmp_path: Path) -> None:
    """As the component says."""
    folder = tmp_path / "kustomize"
    shutil.copytree(EXAMPLE.parent, folder)
    with (folder / "example" / "kustomization.yaml").open("a") as file:
        file.write(
            """
patches:
  - target: {kind: Deployment}
    patch: |
      - op: replace
        path: /spec/template/spec/initContainers/0/resources/limits/memory
        value: 1Gi
"""
        )
    built = tmp_path / "built.yaml"
    built.write_text(build(folder / "example"))
    assert Deployed(built).sidecar["resources"]["limits"]["memory"] == "1Gi"


def test_what_is_the_app_s_own_stays_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "kustomize"
    shutil.copytree(EXAMPLE.parent, folder)
    app = folder / "example" / "app.yaml"
    theirs = yaml.safe_load(app.read_text())
    template = theirs["spec"]["template"]
    notes = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"}
    template["metadata"]["annotations"] = notes
    template["spec"]["terminationGracePeriodSeconds"] = 300
    app.write_text(yaml.safe_dump(theirs))
    built = tmp_path / "built.yaml"
    built.write_text(build(folder / "example"))
    deployed = Deployed(built)
    assert deployed.template["metadata"]["annotations"] == notes
    assert deployed.pod["terminationGracePeriodSeconds"] == 300


async def test_a_secret_that_is_rotated_is_used_without_a_restart(
    built: Path, tmp_path: Path
) -> None:
    """Mounted as the kubelet does it: links to a folder that is swapped for another at once."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("admin-token", "api-token"):
        (secrets / name).symlink_to(f"..data/{name}")
    rotate(secrets, "first")
    text: str = Deployed(built).resources["ConfigMap"]["data"]["holdfast.yaml"]
    text = text.replace(SECRETS, str(secrets))
    text = text.replace("0.0.0.0:9901", "127.0.0.1:0").replace("127.0.0.1:8080", "127.0.0.1:0")
    async with ScriptedUpstream() as upstream:
        text = text.replace("https://api.example", upstream.url)
        async with subprocess_proxy(text, None, "--watch") as proxy:
            assert (await proxy.get("/")).status == 200
            rotate(secrets, "second")
            await eventually(lambda: "configuration reloaded" in proxy.errors, what="a reload")
            assert (await proxy.get("/")).status == 200
        sent = [dict(request.headers)["Authorization"] for request in upstream.requests]
        assert sent == ["Bearer first", "Bearer second"]


def rotate(folder: Path, token: str) -> None:
    """Put another version of the Secret in its place."""
    version = folder / f"..{token}"
    version.mkdir()
    (version / "admin-token").write_text(TOKEN)
    (version / "api-token").write_text(token)
    (folder / "..next").symlink_to(version.name)
    (folder / "..next").rename(folder / "..data")
