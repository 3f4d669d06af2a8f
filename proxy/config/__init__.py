"""YAML → checked, immutable settings.

::

    text ─ parsing ─▶ nodes ─ reader, by the models ─▶ tree: values that know their place
         ─ routes, listeners, upstreams, secrets: what concerns several values
         ─ building ─▶ proxy.policy.settings.Settings

- **models** list every key once; checks, schema and defaults come from there.
- Every **fault** is found in one run and says where, what, and what to write.
- A fault that depends on a value which cannot be read waits for it.
- **Secrets** (whatever came from ``${…}``, tokens, credentials in headers) are
  in the settings and nowhere else.
"""

from typing import TYPE_CHECKING, Any

from proxy.config.faults import ConfigError, Fault, Report
from proxy.config.loaded import Loaded

if TYPE_CHECKING:
    from proxy.config.loading import load, load_with_origins
    from proxy.config.origins import Origins, Setting

__all__ = [
    "ConfigError",
    "Fault",
    "Loaded",
    "Origins",
    "Report",
    "Setting",
    "load",
    "load_with_origins",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever is asked for
    """What reads files, when it is first asked for.

    A worker serves what another process has read: without pydantic and the models it takes 12 MiB
    less, and a quarter less time to start.
    """
    if name not in __all__:
        raise AttributeError(name)
    from proxy.config import loading, origins  # noqa: PLC0415 - see above

    return getattr(origins if name in {"Origins", "Setting"} else loading, name)
