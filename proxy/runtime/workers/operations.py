"""Admin operations where several workers serve: each is run by its declared rule."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from proxy.admin.declaration import StoreSilent, WorkerRule
from proxy.admin.operations import WORKER_RULES, Operations
from proxy.runtime.workers.pool import WorkerPool, within
from proxy.runtime.workers.worker_process import WorkerGone

_ANSWER_PATIENCE = 10.0
"""Seconds that a worker has to look something up."""

_log = logging.getLogger("holdfast")


def operations_of(supervisor: object, pool: WorkerPool) -> Operations:
    """Return the operations of several workers; *supervisor* does those that they do not."""
    return cast("Operations", _PoolOperations(supervisor, pool))


class _PoolOperations:
    """Has an attribute for each operation: a function that asks workers, or the supervisor's."""

    def __init__(self, supervisor: object, pool: WorkerPool) -> None:
        self._supervisor = supervisor
        self._pool = pool

    def __getattr__(self, name: str) -> Callable[..., Any]:
        rule = WORKER_RULES.get(name)
        if rule is None:
            return cast("Callable[..., Any]", getattr(self._supervisor, name))
        return partial(self._ask_one if rule.merge is None else self._ask_all, rule, name)

    async def _ask_one(self, rule: WorkerRule, *call: Any, **options: Any) -> Any:  # noqa: ANN401 - of any operation
        """Have one worker run an operation, and no other after it: it may have been done.

        Raises StoreSilent if the worker does not answer, or there is none.
        """
        if not self._pool.serving:
            raise StoreSilent
        worker = self._pool.serving[0]
        try:
            async with asyncio.timeout(None if rule.takes_long else _ANSWER_PATIENCE):
                return await worker.ask(*call, **options)
        except (WorkerGone, TimeoutError):
            _log.warning("worker %d does not answer %s", worker.number, rule.logged_as or call[0])
            raise StoreSilent from None

    async def _ask_all(self, rule: WorkerRule, *call: Any, **options: Any) -> Any:  # noqa: ANN401 - of any operation
        """Have all workers run an operation, and merge what those say that answer in time."""
        assert rule.merge is not None  # noqa: S101 - for the type checker
        workers = [worker for worker in self._pool.serving if not worker.is_silent]
        work = [worker.ask(*call, **options) for worker in workers]
        done = await within(_ANSWER_PATIENCE, work)
        answered = [task for task in done if not isinstance(task.exception(), WorkerGone)]
        return rule.merge([task.result() for task in answered])
