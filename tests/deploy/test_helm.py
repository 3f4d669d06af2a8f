"""The chart of a gateway: linted, rendered and validated, and its configuration serves."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import proxy
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
from tests.support.json_schema import Draft7Validator
from tests.test_repo import instructions

CHART = FOLDER / "helm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SECRETS = "/run/secrets/holdfast"
EVERYTHING = """
replicas: 1
image: {repository: registry.example/holdfast, tag: 1.2.3}
secretName: other
service: {type: LoadBalancer, port: 8443}
stateVolume: {persistentVolumeClaim: {claimName: letters}}
podMonitor: {enabled: true, interval: 15s, labels: {release: prometheus}}
networkPolicy: {enabled: true, callers: [{namespaceSelector: {}}], prometheus: []}
podLabels: {team: payments}
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: edge, operator: Exists}]
affinity: {nodeAffinity: {}}
"""
"""A value for everything that has one."""


class Rendered:
    """What Helm makes of the chart."""

    def __init__(self, folder: Path, *arguments: str, release: str = "gateway") -> None:
        text = run("helm", "template", release, str(CHART), "--namespace", "shop", *arguments)
        self.file = folder / "rendered.yaml"
        self.file.write_text(text)
        resources: list[dict[str, Any]] = [one for one in yaml.safe_load_all(text) if one]
        self.resources = {resource["kind"]: resource for resource in resources}
        assert len(self.resources) == len(resources)
        self.template: dict[str, Any] = self.resources["Deployment"]["spec"]["template"]
        self.pod: dict[str, Any] = self.template["spec"]
        [self.container] = self.pod["containers"]

    def config(self, folder: Path) -> str:
        """Its configuration, with the secret in *folder*."""
        text: str = self.resources["ConfigMap"]["data"]["holdfast.yaml"]
        (folder / "admin-token").write_text(f"{TOKEN}\n")
        return text.replace(SECRETS, str(folder))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return Rendered(tmp_path_factory.mktemp("usual"))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    folder = tmp_path_factory.mktemp("everything")
    values = folder / "values.yaml"
    values.write_text(EVERYTHING)
    return Rendered(folder, "--values", str(values))


def test_helm_finds_nothing_wrong() -> None:
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", str(CHART))


@every_version
def test_it_keeps_to_the_schema_of_kubernetes(
    version: str, usual: Rendered, everything: Rendered
) -> None:
    files = str(usual.file), str(everything.file)
    said = run("kubernetes-validate", "--strict", "-k", version, *files)
    kinds = [*usual.resources, *everything.resources]
    # The other one is not Kubernetes's own.
    assert said.count("passed") == len([kind for kind in kinds if kind != "PodMonitor"])


def test_its_version_is_that_of_the_program(usual: Rendered) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (proxy.__version__, proxy.__version__)
    assert usual.container["image"] == f"holdfast:{proxy.__version__}"


def test_every_value_has_an_effect(usual: Rendered, everything: Rendered) -> None:
    assert set(yaml.safe_load(EVERYTHING)) | {
        "config",
        "resources",
        "terminationGracePeriodSeconds",
    } == set(VALUES)
    assert usual.resources.keys() - everything.resources.keys() == {"PodDisruptionBudget"}
    assert everything.resources.keys() - usual.resources.keys() == {"PodMonitor"}
    assert everything.resources["Deployment"]["spec"]["replicas"] == 1
    assert everything.container["image"] == "registry.example/holdfast:1.2.3"
    service = everything.resources["Service"]["spec"]
    assert (service["type"], service["ports"][0]["port"]) == ("LoadBalancer", 8443)
    assert {"name": "state", "emptyDir": {"sizeLimit": "256Mi"}} in usual.pod["volumes"]
    volumes = {volume["name"]: volume for volume in everything.pod["volumes"]}
    assert volumes["secrets"]["secret"]["secretName"] == "other"
    assert volumes["state"] == {
        "name": "state",
        "persistentVolumeClaim": {"claimName": "letters"},
    }
    assert everything.template["metadata"]["labels"]["team"] == "payments"
    monitor = everything.resources["PodMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"][0]["interval"] == "15s"
    for name in ("nodeSelector", "tolerations", "affinity"):
        assert everything.pod[name] == yaml.safe_load(EVERYTHING)[name]


def test_the_values_are_described_and_a_wrong_one_is_refused() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    assert set(schema["properties"]) == {*VALUES, "global"}
    for name, value in VALUES.items():
        described = schema["properties"][name].get("properties")
        if described is not None:
            assert set(described) == set(value)
    with pytest.raises(AssertionError, match="replica"):
        run("helm", "template", "gateway", str(CHART), "--set", "replica=3")


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("listen: 127.0.0.1:8080\nadmin: 0.0.0.0:9901", "config must say listen: 0.0.0.0:8080"),
        ("listen: 0.0.0.0:8080", "config must say admin: 0.0.0.0:9901"),
        ("listen: [", "config is no YAML"),
    ],
)
def test_a_configuration_that_could_not_be_reached_is_refused(
    config: str, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text(config)
    with pytest.raises(AssertionError, match=complaint):
        run("helm", "template", "gateway", str(CHART), "--set-file", f"config={file}")


def test_one_volume_is_for_one_pod_at_a_time(usual: Rendered, everything: Rendered) -> None:
    assert everything.resources["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert "strategy" not in usual.resources["Deployment"]["spec"]
    claim = "stateVolume.persistentVolumeClaim.claimName=letters"
    complaint = "stateVolume is for one replica: SQLite files cannot be shared by pods"
    with pytest.raises(AssertionError, match=complaint):
        run("helm", "template", "gateway", str(CHART), "--set", f"replicas=2,{claim}")


@pytest.mark.parametrize(
    "volume",
    [
        "emptyDir.sizeLimit=1Gi",
        "ephemeral.volumeClaimTemplate.spec.resources.requests.storage=1Gi",
    ],
)
def test_a_volume_of_each_pod_s_own_is_for_any_number(volume: str, tmp_path: Path) -> None:
    rendered = Rendered(tmp_path, "--set", f"replicas=3,stateVolume.{volume}")
    deployment = rendered.resources["Deployment"]["spec"]
    assert deployment["replicas"] == 3
    assert "strategy" not in deployment


def test_a_file_of_one_s_own_arrives_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    text = VALUES["config"] + "  # a comment {{ .Values.replicas }}\nstore: {entries: 1000000}\n"
    file.write_text(text)
    rendered = Rendered(tmp_path, "--set-file", f"config={file}", release="my-holdfast")
    assert rendered.resources["ConfigMap"]["data"]["holdfast.yaml"] == text
    assert {one["metadata"]["name"] for one in rendered.resources.values()} == {"my-holdfast"}


def test_its_configuration_is_where_it_looks_and_can_be_used(
    usual: Rendered, tmp_path: Path
) -> None:
    options = options_of_run(usual.container["args"])
    assert options["watch"]
    assert all("subPath" not in mount for mount in usual.container["volumeMounts"])
    mounts = {mount["mountPath"]: mount["name"] for mount in usual.container["volumeMounts"]}
    assert (mounts["/etc/holdfast"], mounts[SECRETS]) == ("config", "secrets")
    assert options["files"] == ("/etc/holdfast/holdfast.yaml",)
    settings = settings_of(usual.config(tmp_path), tmp_path)
    assert patience(settings) < usual.pod["terminationGracePeriodSeconds"]
    assert settings.drain_delay > 0, "callers go on for a moment after a pod has left the Service"
    limit = int(usual.container["resources"]["limits"]["memory"].removesuffix("Mi")) * 2**20
    assert settings.limits.replay_memory <= limit / 2
    ports = {port["name"]: port["containerPort"] for port in usual.container["ports"]}
    assert settings.admin is not None
    assert ports == {"http": settings.listen[0].port, "holdfast-admin": settings.admin.port}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = usual.container[probe]["httpGet"]
        assert asked["path"] == ("/healthz" if probe == "livenessProbe" else "/readyz")
        assert asked["port"] == "holdfast-admin"


def test_all_mean_the_same_pods(usual: Rendered, everything: Rendered) -> None:
    labels = usual.template["metadata"]["labels"].items()
    found = usual.resources
    for selector in (
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        everything.resources["PodMonitor"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector
        assert selector.items() <= labels
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == "http"


def test_prometheus_alone_may_ask_the_admin_listener(usual: Rendered, everything: Rendered) -> None:
    calls, scrapes = usual.resources["NetworkPolicy"]["spec"]["ingress"]
    assert (calls["ports"][0]["port"], scrapes["ports"][0]["port"]) == (8080, 9901)
    # Whoever calls has the credentials of the file: by default the same namespace alone.
    assert calls["from"] == VALUES["networkPolicy"]["callers"] == [{"podSelector": {}}]
    assert scrapes["from"] == VALUES["networkPolicy"]["prometheus"]
    calls, scrapes = everything.resources["NetworkPolicy"]["spec"]["ingress"]
    assert calls["from"] == [{"namespaceSelector": {}}]
    assert "from" not in scrapes


def test_it_may_do_nothing_that_it_need_not(usual: Rendered) -> None:
    assert usual.container["securityContext"] == NO_RIGHTS
    assert ("USER", "65532:65532") in instructions()
    assert usual.pod["automountServiceAccountToken"] is False
    # By its group the user can read the Secret, and write to a volume of one's own.
    assert usual.pod["securityContext"] == {"fsGroup": 65532}


async def test_it_serves(usual: Rendered, tmp_path: Path) -> None:
    text = usual.config(tmp_path).replace("0.0.0.0:8080", "127.0.0.1:0")
    await walk(text.replace("drain_delay: 5s", "drain_delay: 0s"))
