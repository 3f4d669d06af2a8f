"""Everything in here runs on uvloop, as the proxy does."""

import asyncio
import gc
from collections.abc import Callable

import pytest
import uvloop

# The kit's own assertions explain themselves like those of a test.
pytest.register_assert_rewrite("tests.support")


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop, unless a test asks for more (``tests.support.both_loops``)."""
    marker = item.get_closest_marker("asyncio")
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "uvloop": uvloop.new_event_loop
    }
    if marker is not None and "loop_factories" in marker.kwargs:
        factories["asyncio"] = asyncio.new_event_loop
    return factories


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """What outlived the modules before is no garbage: collecting after each test stays cheap."""
    gc.collect()
    gc.freeze()
