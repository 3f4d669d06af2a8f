"""The store that is configured opens itself, and has what its settings say that it can do."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from proxy.core.clock import SystemClock
from proxy.observe.metrics.families import STORE_ERRORS
from proxy.observe.metrics.recorders import Metrics
from proxy.policy.settings import MemorySettings, StoreSettings
from proxy.policy.settings.store import RedisSettings, SqliteSettings
from proxy.stores.opening import open_store


def settings_in(folder: Path) -> list[StoreSettings]:
    return [MemorySettings(), SqliteSettings(str(folder / "keys.db")), RedisSettings("127.0.0.1")]


def test_every_kind_is_tried_here(tmp_path: Path) -> None:
    assert {*map(type, settings_in(tmp_path))} == {*get_args(StoreSettings)}


@pytest.mark.parametrize("number", range(len(get_args(StoreSettings))))
async def test_a_store_has_what_its_settings_say(tmp_path: Path, number: int) -> None:
    settings = settings_in(tmp_path)[number]
    metrics = Metrics(version="1", parser="c", loaded_at=0.0)
    store = open_store(settings, SystemClock(), metrics, keeps_keys=False)
    # What other processes share cannot answer at once, and may be out of reach.
    assert (store.shared is not None) == settings.shares_keys
    assert (store.keys.at_once is None) == settings.shares_keys
    assert (store.recorder is not None) == settings.shares_keys
    assert bool(metrics.snapshot()[STORE_ERRORS]) == settings.shares_keys
    limiters: object = store.limiters
    assert (limiters is store.shared) == settings.shares_limits
    if not settings.shares_limits:
        # Names of buckets that are only for this process need not be found by another.
        again = open_store(settings, SystemClock(), metrics, keeps_keys=False)
        assert store.limiters.digest_key != again.limiters.digest_key


def test_only_the_driver_that_is_used_is_loaded() -> None:
    program = """
import sys
from proxy.core.clock import SystemClock
from proxy.observe.metrics.recorders import Metrics
from proxy.policy.settings import MemorySettings
from proxy.policy.settings.store import RedisSettings
from proxy.stores.opening import open_store
metrics = Metrics(version="1", parser="c", loaded_at=0.0)
open_store(MemorySettings(), SystemClock(), metrics, keeps_keys=True)
assert not {"hiredis", "sqlite3"} & sys.modules.keys()
open_store(RedisSettings("127.0.0.1"), SystemClock(), metrics, keeps_keys=True)
assert "hiredis" in sys.modules
assert "sqlite3" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
