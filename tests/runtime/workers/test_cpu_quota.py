"""``workers: auto``: the processors that this process may use."""

import os
from pathlib import Path

import pytest

from proxy.policy.settings import Limits, Origin, Settings, UpstreamSettings
from proxy.runtime.workers.cpu_quota import usable_cores, worker_count

BOUND = len(os.sched_getaffinity(0))


def cores(folder: Path, own: str, files: dict[str, str]) -> int:
    (folder / "own").write_text(own)
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return usable_cores(folder / "groups", folder / "own")


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        pytest.param("", {}, BOUND, id="no groups"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, BOUND, id="all of it"),
        pytest.param("0::/\n", {"cpu.max": "100000 100000\n"}, 1, id="one"),
        pytest.param("0::/\n", {"cpu.max": "50000 100000\n"}, 1, id="half of one is one"),
        pytest.param("0::/\n", {"cpu.max": "190000 100000\n"}, 1, id="nearly two are one"),
        pytest.param("0::/\n", {"cpu.max": "9900000 100000\n"}, BOUND, id="more than there are"),
        pytest.param(
            "0::/a/b\n",
            {"a/cpu.max": "100000 100000\n", "a/b/cpu.max": "max 100000\n"},
            1,
            id="a group around it",
        ),
        pytest.param("0::/\n", {"cpu.max": "nonsense\n"}, BOUND, id="nobody can read it"),
        pytest.param(
            "4:cpu,cpuacct:/a\n1:name=x:/\n",
            {"cpu/a/cpu.cfs_quota_us": "100000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            1,
            id="version 1",
        ),
        pytest.param(
            "4:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            BOUND,
            id="version 1 without a limit",
        ),
    ],
)
def test_cores(tmp_path: Path, own: str, files: dict[str, str], expected: int) -> None:
    assert cores(tmp_path, own, files) == expected


def test_a_number_is_taken_as_it_is_and_auto_never_exceeds_what_is_divided() -> None:
    upstream = UpstreamSettings("a", (Origin("http", "a", 80),), max_connections=1)
    settings = Settings(workers=7, upstreams=(upstream,))
    assert worker_count(settings) == 7
    assert worker_count(Settings()) == 1
    assert worker_count(Settings(workers=None)) == usable_cores()
    assert worker_count(Settings(workers=None, upstreams=(upstream,))) == 1
    few = Limits(connections=1)
    assert worker_count(Settings(workers=None, limits=few)) == 1
