"""What the files of ``config/deploy`` have in common."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from proxy.cli import main
from proxy.config import load
from proxy.policy.settings import Settings
from tests.support import RawClient, ScriptedUpstream, running
from tests.support.proxies import ROOT

FOLDER = ROOT / "config" / "deploy"
UPSTREAM = "https://api.example"
TOKEN = "a-token-for-tests"
NO_RIGHTS = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The security context of a container that may do nothing that it need not."""

older = [pytest.param(version, marks=pytest.mark.deep) for version in ("1.29", "1.33")]
every_version = pytest.mark.parametrize("version", [*older, "1.37"])
"""Those of Kubernetes: each schema takes seconds to read, and the files change seldom."""


def run(program: str, *arguments: str) -> str:
    """What a program says that must succeed; by its name, if it is one of the packages'."""
    beside = Path(sys.executable).parent / program
    command = [str(beside) if beside.exists() else program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def options_of_run(arguments: list[str]) -> dict[str, Any]:
    """What ``holdfast run`` understands; *arguments* begin with ``run``."""
    command = main.get_command(click.Context(main), arguments[0])
    assert command is not None
    params = command.make_context("run", arguments[1:], resilient_parsing=True).params
    return {**params, "files": params["arguments"] or params["config"]}


def settings_of(config: str, folder: Path) -> Settings:
    """What a configuration says, which must be without faults and warnings."""
    file = folder / "holdfast.yaml"
    file.write_text(config)
    loaded = load([file], {"HOLDFAST_ADMIN_TOKEN": TOKEN})
    assert loaded.warnings == ()
    return loaded.settings


def patience(settings: Settings) -> float:
    """Seconds that it may take to end."""
    return settings.drain_delay + settings.drain_timeout


async def walk(config: str) -> None:
    """Serve with *config*, and ask as the app, a prober and a scraper would."""
    async with ScriptedUpstream() as upstream:
        text = config.replace(UPSTREAM, upstream.url)
        text = text.replace("0.0.0.0:9901", "127.0.0.1:0").replace("127.0.0.1:8080", "127.0.0.1:0")
        async with running(text, environ={"HOLDFAST_ADMIN_TOKEN": TOKEN}) as proxy:
            assert (await proxy.get("/v1/things")).status == 200
            assert upstream.requests[0].target == "/v1/things"
            # The kubelet and Prometheus ask for the address of the pod.
            async with RawClient(proxy.admin_port) as kubelet:
                answers = {
                    path: (await kubelet.request("GET", path, "Host: 10.0.0.7:9901")).status
                    for path in ("/healthz", "/readyz", "/metrics", "/status")
                }
            assert answers == {"/healthz": 200, "/readyz": 200, "/metrics": 200, "/status": 401}
            shown = await proxy.admin("GET", "/config", f"Authorization: Bearer {TOKEN}")
            assert shown.status == 200
            assert TOKEN.encode() not in shown.body
