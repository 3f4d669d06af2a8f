"""The proxies to measure and the upstream behind them: how to start and stop each.

All listen on loopback, on ports that the system picked, and end with the run.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import yaml

from bench import tools

HERE = Path(__file__).parent
JSON_BODY = json.dumps({"id": 1234567, "status": "ok", "items": list(range(10)), "note": "x" * 16})
MIB = 1024 * 1024

READY_WITHIN = 15.0
STOP_WITHIN = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """A process that answers on *port*."""

    name: str
    pid: int
    port: int
    ready_after: float
    """Seconds from start to the first connection."""

    def cpu_seconds(self) -> float:
        """User and system time of all its threads so far."""
        # The process's own clock, as clock_getcpuclockid(3) would name it: nanoseconds,
        # where /proc/PID/stat counts ticks of 10 ms.
        return time.clock_gettime(~self.pid << 3 | 2)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a proxy runs: its port, those of upstream and store, a folder for its files."""

    port: int
    upstream: int
    folder: Path
    store: int = 0

    def render(self, template: str, **values: str) -> Path:
        """Fill in a configuration file of this folder."""
        text = Template((HERE / template).read_text()).substitute(
            PORT=self.port, UPSTREAM=self.upstream, DIR=self.folder, **values
        )
        path = self.folder / f"{self.port}-{template}"
        path.write_text(text)
        return path


Command = tuple[list[str], dict[str, str]]
"""What to start, and what to add to its environment."""


@contextmanager
def started(name: str, place: Place, core: int) -> Iterator[Running]:
    """The proxy called *name*, from ready to ended."""
    command, environment = PROXIES[name](place)
    with _running(name, place.port, tools.pinned(core, *command), environment) as running:
        yield running


@contextmanager
def upstream(folder: Path) -> Iterator[Running]:
    """The nginx that answers every proxy. The scheduler may place it anywhere."""
    (folder / "1MiB").write_bytes(bytes(MIB))
    # nginx started by root runs its workers as another user, who must be able to read it.
    folder.chmod(0o755)
    place = Place(free_port(), 0, folder)
    config = place.render("upstream.nginx.conf", JSON=JSON_BODY)
    command = [tools.program("nginx"), "-c", str(config), "-p", str(folder)]
    with _running("upstream", place.port, command, {}) as running:
        yield running


@contextmanager
def store(folder: Path) -> Iterator[Running]:
    """The Redis that instances share."""
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
    with _running("store", port, [tools.program("redis-server"), *options], {}) as running:
        yield running


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _holdfast(place: Place, *more: str) -> Command:
    environment = {
        "BENCH_PORT": str(place.port),
        "BENCH_ADMIN": str(free_port()),
        "BENCH_UPSTREAM": str(place.upstream),
    }
    files = [HERE / "holdfast.yaml", *more]
    arguments = [part for file in files for part in ("-c", str(file))]
    return [sys.executable, "-m", "proxy", "run", *arguments], environment


def _holdfast_with(**more: object) -> Callable[[Place], Command]:
    """Holdfast with other keys besides: policies of which none ever has to act."""

    def command(place: Place) -> Command:
        file = place.folder / f"holdfast-{place.port}.yaml"
        file.write_text(yaml.safe_dump(more))
        return _holdfast(place, str(file))

    return command


def _holdfast_with_redis(place: Place) -> Command:
    """Holdfast with a throttle that it shares with other instances."""
    url = f"redis://127.0.0.1:{place.store}"
    return _holdfast_with(store=url, defaults={"throttle": _PLENTY})(place)


_PLENTY = "1000000/s"
"""A rate that is never reached."""


def _holdfast_with_routes(count: int) -> Callable[[Place], Command]:
    """Holdfast with *count* routes, the last of which is the one that matches."""

    def command(place: Place) -> Command:
        names = [*(f"service-{number}" for number in range(count - 1)), "service-last"]
        routes = [{"name": name, "match": f"/{name}/**", "upstream": "upstream"} for name in names]
        file = place.folder / f"routes-{count}.yaml"
        file.write_text(yaml.safe_dump({"routes": routes}))
        return _holdfast(place, str(file))

    return command


def _envoy(place: Place) -> Command:
    return _envoy_with(place.render("envoy.yaml")), {}


def _envoy_policies(place: Place) -> Command:
    """Envoy with a retry policy and a local rate limit, neither of which ever acts."""
    path = place.render("envoy.yaml")
    config = yaml.safe_load(path.read_text())
    filters = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
    manager: dict[str, Any] = filters[0]["typed_config"]
    route = manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"]
    route["retry_policy"] = {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": [502, 503, 504],
        "num_retries": 2,
    }
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    limit = {
        "@type": "type.googleapis.com/"
        "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limit",
        "token_bucket": {
            "max_tokens": 10_000_000,
            "tokens_per_fill": 10_000_000,
            "fill_interval": "1s",
        },
        "filter_enabled": always,
        "filter_enforced": always,
    }
    manager["http_filters"].insert(
        0, {"name": "envoy.filters.http.local_ratelimit", "typed_config": limit}
    )
    path.write_text(yaml.safe_dump(config))
    return _envoy_with(path), {}


def _envoy_with(config: Path) -> list[str]:
    quiet = ("--log-level", "error", "--disable-hot-restart")
    return [str(tools.envoy()), "-c", str(config), "--concurrency", "1", *quiet]


def _nginx(place: Place) -> Command:
    config = place.render("proxy.nginx.conf")
    return [tools.program("nginx"), "-c", str(config), "-p", str(place.folder)], {}


PROXIES: dict[str, Callable[[Place], Command]] = {
    "holdfast": _holdfast,
    "holdfast-retry": _holdfast_with(defaults={"retry": True}),
    "holdfast-throttle": _holdfast_with(defaults={"throttle": _PLENTY}),
    "holdfast-redis": _holdfast_with_redis,
    "holdfast-keys": _holdfast_with(
        store={"url": "memory", "entries": 1_000_000, "bytes": "1GiB"},
        defaults={"idempotency": True},
    ),
    "holdfast-policies": _holdfast_with(defaults={"retry": True, "throttle": _PLENTY}),
    "holdfast-10-routes": _holdfast_with_routes(10),
    "holdfast-1000-routes": _holdfast_with_routes(1000),
    "envoy": _envoy,
    "envoy-policies": _envoy_policies,
    "nginx": _nginx,
}


SHARING = frozenset({"holdfast-redis"})
"""Those that need a store."""


@contextmanager
def _running(
    name: str, port: int, command: list[str], environment: dict[str, str]
) -> Iterator[Running]:
    begun = time.monotonic()
    # Their logs are not the benchmark's output; what they complain about is.
    process = subprocess.Popen(
        command, env=os.environ | environment, cwd=HERE.parent, stdout=subprocess.DEVNULL
    )
    try:
        _wait_until_ready(name, process, port)
        yield Running(name, process.pid, port, time.monotonic() - begun)
    finally:
        process.terminate()
        try:
            process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(name: str, process: subprocess.Popen[bytes], port: int) -> None:
    give_up = time.monotonic() + READY_WITHIN
    while time.monotonic() < give_up:
        if process.poll() is not None:
            raise tools.BenchFailed(f"{name} ended at once with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.005)
        else:
            return
    raise tools.BenchFailed(f"{name} did not listen within {READY_WITHIN:g} s")
