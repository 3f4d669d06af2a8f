"""Value type of the number of worker processes."""

from proxy.config.values.base import CountOrWord, Integer

MOST_WORKERS = 256
"""Upper bound: more cores than any machine has for a sidecar."""


class WorkerCount(CountOrWord):
    """The number of worker processes; None is ``auto``: one for each usable core."""

    noun = "number of workers"
    example = "2"
    word = "auto"
    number = Integer(1, MOST_WORKERS, zero="workers would serve nothing, write 1 or auto")
    reason = ", or auto for one per core"
