"""Everything in here runs on uvloop, as the proxy does."""

import asyncio
import gc
from collections.abc import Callable

import pytest
import uvloop

# The kit's own assertions explain themselves like those of a test.
pytest.register_assert_rewrite("tests.support")

from tests.support.virtual import TestLoop  # noqa: E402 - rewritten as said above


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, unless a test asks for others: see ``both_loops``, ``virtual_time`` of the kit."""
    marker = item.get_closest_marker("asyncio")
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "uvloop": uvloop.new_event_loop
    }
    if marker is not None and "loop_factories" in marker.kwargs:
        factories["asyncio"] = asyncio.new_event_loop
        factories["virtual"] = TestLoop
    return factories


# What measures time, rates or memory, or uses ports that are in a file: others beside it would
# be measured as well. ``make test`` runs these by themselves, and all others two at a time.
ALONE = (
    "tests/bench/test_real.py",
    "tests/bounds",
    "tests/faults/test_clock_jumps.py",
    "tests/faults/test_crowds.py",
    "tests/faults/test_silence.py",
    "tests/faults/test_slow_clients.py",
    "tests/faults/test_throttle.py",
    "tests/observe/metrics/test_metrics.py",
    "tests/observe/metrics/test_throttle_metrics.py",
    "tests/pipeline/idempotency/test_crowds.py",
    "tests/pipeline/idempotency/test_waiters.py",
    "tests/pipeline/test_storms.py",
    "tests/pipeline/throttle/test_pause_on_the_wire.py",
    "tests/pipeline/throttle/test_shared_throttle.py",
    "tests/pipeline/throttle/test_shared_throttle_under_load.py",
    "tests/pipeline/throttle/test_strict_upstreams.py",
    "tests/pipeline/throttle/test_throttle_concurrency.py",
    "tests/pipeline/throttle/test_throttle_on_the_wire.py",
    "tests/pipeline/throttle/test_throttle_queue.py",
    "tests/pipeline/throttle/test_throttle_reload.py",
    "tests/pipeline/throttle/test_throttle_under_load.py",
    "tests/policy/throttle/test_caller_key.py",
    "tests/policy/throttle/test_wait_queue.py",
    "tests/runtime/test_config_watch.py",
    "tests/stores/redis/test_degraded.py",
    "tests/stores/redis/test_limiter.py",
    "tests/test_demo.py",
    "tests/test_readme.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is to run by itself."""
    missing = [path for path in ALONE if not (config.rootpath / path).exists()]
    assert not missing, f"moved, so it would not run by itself: {missing}"
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        if path.startswith(ALONE):
            item.add_marker("alone")


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """What outlived the modules before is no garbage: collecting after each test stays cheap."""
    gc.collect()
    gc.freeze()
