"""How many processors this process may use: by its CPU affinity, and by its cgroup's quota."""

import os
from pathlib import Path

from proxy.policy.settings import Settings

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_CPU_MAX_FIELDS = 2


def worker_count(settings: Settings) -> int:
    """Return how many workers to start.

    With ``auto`` never so many that a worker's share of a limit would be no connection: a file
    must not become faulty on a larger machine.
    """
    if settings.workers is not None:
        return settings.workers
    limits = [settings.limits.connections, *(up.max_connections for up in settings.upstreams)]
    return min(usable_cores(), *limits)


def usable_cores(groups: Path = _GROUPS, own_groups: Path = _OWN_GROUPS) -> int:
    """Return the number of whole processors to use, at least one."""
    affinity = getattr(os, "sched_getaffinity", None)
    bound = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(int(min(bound, _granted(groups, own_groups))), 1)


def _granted(groups: Path, own_groups: Path) -> float:
    """Return the processors that the strictest cgroup around this process grants."""
    grants = []
    for line in _text(own_groups).splitlines():
        # cgroup version 2 has one line, version 1 one for each controller.
        _, controllers, path = line.split(":", 2)
        is_new = not controllers
        if not is_new and "cpu" not in controllers.split(","):
            continue
        top = groups if is_new else groups / "cpu"
        group = top / path.lstrip("/")
        while True:
            grants.append(_quota(group) if is_new else _old_quota(group))
            if group == top or top not in group.parents:
                break
            group = group.parent
    return min(grants, default=float("inf"))


def _quota(group: Path) -> float:
    """Read ``cpu.max``, such as ``max 100000`` or ``150000 100000``: time in each period."""
    fields = _text(group / "cpu.max").split()
    if len(fields) != _CPU_MAX_FIELDS or not fields[0].isdigit():
        return float("inf")
    return int(fields[0]) / int(fields[1])


def _old_quota(group: Path) -> float:
    quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    if not quota.strip().isdigit() or not period.strip().isdigit():
        return float("inf")
    return int(quota) / int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no such group, or another system
        return ""
