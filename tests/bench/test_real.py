"""The bench itself, once, with real processes: short, and with what every machine has."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bench.case import Case, Contender
from bench.cases import SUBJECT
from bench.loads import Figures, Load, Plan
from bench.loads.closed import ClosedLoop
from bench.loads.idle import Idle
from bench.loads.paced import Paced
from bench.loads.pacer import Pacer, schedule
from bench.loads.startup import Startup
from bench.loads.transfer import Stall, Transfer, connected
from bench.processes import MIB, Running, free_port, running
from bench.results import Results
from bench.run import measure
from bench.tools import BenchFailed
from tests.support.tools import tool

PLAN = Plan(rounds=1, seconds=0.3, idle_connections=100, stall_seconds=0.05, stall_mib=8)


def case(name: str, load: Load) -> Case:
    contender = Contender(SUBJECT, SUBJECT, load)
    return Case(name, name, (contender,), (), ("cpu",), upstream="bodies")


def test_every_load_measures_a_real_holdfast(tmp_path: Path) -> None:
    tool("wrk")
    cases = [
        case("closed", ClosedLoop(connections=4, body_bytes=MIB)),
        case("paced", Paced(part=0.1, loops=1)),
        case("up", Transfer("up", "/", mib=2)),
        case("down", Transfer("down", f"/bytes/{2 * MIB}", mib=2)),
        case("stall", Stall()),
        case("idle", Idle()),
        case("start", Startup()),
    ]
    results = Results(PLAN)
    measure(cases, results, tmp_path / "kept.json")
    assert [one.left_out for one in results.cases.values()] == [{}] * len(cases)
    found = {name: one.series[SUBJECT][0] for name, one in results.cases.items()}
    assert found["closed"].keys() == {"cpu", "p50", "p99", "per_second", "rss", "cpu_mib"}
    assert 0 < found["closed"]["p50"] <= found["closed"]["p99"]
    assert found["paced"].keys() == {"cpu", "p50", "p99", "rate", "late", "late_p99"}
    assert 0 < found["paced"]["late"] < found["paced"]["p50"]
    assert found["up"]["cpu_mib"] > 0
    assert found["down"]["mib_per_second"] > 0
    assert found["stall"]["above_idle"] < 30
    assert found["idle"]["rss"] > found["idle"]["kib_each"] / 1024
    assert found["start"]["seconds"] > 0


@dataclass(frozen=True)
class BrokenOff:
    """As if somebody pressed Ctrl-C."""

    def warmed_up(self, _proxy: Running, _plan: Plan) -> "BrokenOff":
        raise KeyboardInterrupt

    def measure(self, _proxy: Running, _plan: Plan) -> Figures:
        raise KeyboardInterrupt


def test_what_was_measured_is_kept_when_the_run_is_broken_off(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    results = Results(PLAN)
    cases = [case("start", Startup()), case("later", BrokenOff())]
    measure([replace(one, fresh=True) for one in cases], results, path)
    kept = json.loads(path.read_text())
    assert kept["complete"] is False
    assert results.cases.keys() == {"start"}
    assert "**The run was broken off" in path.with_suffix(".md").read_text()
    assert not list(tmp_path.glob("*.draft"))


# The tools by themselves.


@contextmanager
def answering(stalls: float) -> Iterator[int]:
    """The port of a server for one connection that stalls for so many seconds at first."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            waits = stalls
            while connection.recv(65536):
                time.sleep(waits)
                waits = 0.0
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


def test_a_request_that_had_to_wait_counts_from_when_it_was_due() -> None:
    with answering(stalls=0.2) as port:
        pacer = Pacer(port, connections=1)
        # The second is due while the first one stalls, and has no connection to go out on.
        pacer.run(schedule(rate=20, seconds=0.1, begin=time.monotonic_ns()))
        pacer.close()
    first, second = sorted(pacer.latencies, reverse=True)
    assert first >= 200e6
    assert second >= 140e6
    # The tool itself was late for neither: only for the first was a connection free.
    assert len(pacer.late) == 1
    assert pacer.failed == 0


def test_a_server_that_leaves_is_a_failure_and_no_hang() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pacer = Pacer(listener.getsockname()[1], connections=1)
        accepted, _ = listener.accept()
        accepted.close()
        pacer.run(schedule(rate=1000, seconds=0.003, begin=time.monotonic_ns()))
        pacer.close()
    assert pacer.failed == 3
    assert pacer.latencies == []


@contextmanager
def bodies(folder: Path) -> Iterator[Running]:
    port = free_port()
    command = [sys.executable, "-m", "bench.stage.bodies", str(port)]
    with running("bodies", port, command, folder) as process:
        yield process


def test_the_upstream_for_bodies_reads_them_to_their_end(tmp_path: Path) -> None:
    with bodies(tmp_path) as process, connected(process) as client:
        client.post("/", 3 * MIB)
        client.get(f"/bytes/{3 * MIB}")
        begun = time.monotonic()
        client.post("/stall/0.1", MIB)
        assert time.monotonic() - begun >= 0.1


def test_a_process_that_ends_at_once_is_told_with_its_own_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such luck')"]
    with (
        pytest.raises(BenchFailed, match=r"^it ended at once: no such luck$"),
        running("it", free_port(), command, tmp_path),
    ):
        pass


def test_the_clocks_of_children_count(tmp_path: Path) -> None:
    port = free_port()
    script = f"""
import os, socket
if os.fork() == 0:
    while True:
        pass
listener = socket.create_server(("127.0.0.1", {port}))
while True:
    listener.accept()
"""
    with running("it", port, [sys.executable, "-c", script], tmp_path) as process:
        (child,) = process.children_cpu_seconds()
        before = process.cpu_seconds()
        deadline = time.monotonic() + 10
        while process.cpu_seconds() < before + 0.02:
            assert time.monotonic() < deadline
        os.kill(child, signal.SIGKILL)


# From the outside.


def test_an_unknown_case_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.run", "--only", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "invalid choice: 'nonsense'" in done.stderr
