"""Everything in here runs on uvloop, as the proxy does."""

import asyncio
import gc
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import uvloop

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every program
# that a test starts, and then waits for in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until the tests are read: see pytest_collection_finish

# Thousands of small files that live for a test: in memory, where there is a place for that. On a
# disk each commit to one waits for it. TMPDIR says otherwise, to programs that tests start as well.
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - the folders in there have names of their own
if "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK):
    os.environ["TMPDIR"] = tempfile.tempdir = str(_IN_MEMORY)

# The kit's own assertions explain themselves like those of a test.
pytest.register_assert_rewrite("tests.support")

from tests.support import depth  # noqa: E402, F401 - rewritten as said above; it has the profile
from tests.support.files_at_once import files_at_once  # noqa: E402, F401 - a fixture
from tests.support.virtual import TestLoop  # noqa: E402 - as above

hypothesis.settings.load_profile("usual")


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, unless a test asks for others: see ``both_loops``, ``virtual_time`` of the kit."""
    marker = item.get_closest_marker("asyncio")
    if marker is not None and "loop_factories" in marker.kwargs:
        return {
            "uvloop": uvloop.new_event_loop,
            "asyncio": asyncio.new_event_loop,
            "virtual": TestLoop,
        }
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": TestLoop}
    return {"uvloop": uvloop.new_event_loop}


# What measures real time, rates or CPU with real parts, or uses ports that are in a file: the fewer
# run beside it, the less they are measured as well. ``make test`` runs these last, one for each of
# two cores. Single tests of other modules are marked where they stand.
ALONE = (
    "tests/bench/test_real.py",
    "tests/bounds/test_steady.py",
    "tests/pipeline/idempotency/test_crowds.py",
    "tests/pipeline/idempotency/test_waiters.py",
    "tests/pipeline/throttle/test_shared_throttle_under_load.py",
    "tests/stores/redis/test_degraded.py",
    "tests/stores/redis/test_limiter.py",
    "tests/test_demo.py",
)

# It starts what listens on the ports of config/demo.yaml: one test after the other.
FIXED_PORTS = ("tests/test_demo.py",)

# What may go another way on another Python: tasks and their cancellation, event loops, aiohttp's
# parser and hooks, processes and signals, sqlite3, TLS, and the calls that a request takes.
# ``make test-newest`` runs these on the newest.
INTERPRETER = (
    "tests/app",
    "tests/core",
    "tests/faults/test_clients_leaving.py",
    "tests/faults/test_draining.py",
    "tests/faults/test_our_own_faults.py",
    "tests/net",
    "tests/pipeline/idempotency/test_client_disconnects.py",
    "tests/pipeline/idempotency/test_stage.py",
    "tests/pipeline/test_retry_cancelled.py",
    "tests/pipeline/test_retry_session.py",
    "tests/runtime",
    "tests/server",
    "tests/stores/sqlite",
    "tests/stores/sqlite_file",
    "tests/stores/test_idempotency_contract.py",
    "tests/test_kit.py",
    "tests/upstream",
    "tests/weight",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules of which ``-m`` would select nothing: to import all takes a while."""
    word = config.option.markexpr.partition(" ")[0]
    listed = {"alone": ALONE, "interpreter": INTERPRETER, "deep": ()}.get(word)
    if listed is None or not collection_path.name.startswith("test_"):
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    is_selected = path.startswith(listed) or f"mark.{word}" in collection_path.read_text()
    return None if is_selected else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is to run by itself, and what on the newest Python as well."""
    missing = [path for path in (*ALONE, *INTERPRETER) if not (config.rootpath / path).exists()]
    assert not missing, f"moved, so it would not be marked: {missing}"
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        if path.startswith(ALONE):
            item.add_marker("alone")
        if path.startswith(FIXED_PORTS):
            item.add_marker(pytest.mark.xdist_group("fixed ports"))
        if path.startswith(INTERPRETER):
            item.add_marker("interpreter")


def pytest_collection_finish() -> None:
    """Collect garbage again: of all that was read for the tests there is none."""
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """What outlived the modules before is no garbage: collecting after each test stays cheap."""
    gc.collect()
    gc.freeze()
