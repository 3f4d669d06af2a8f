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

from proxy.config.faults import ConfigError, Fault, Report
from proxy.config.loading import Loaded, load, load_with_origins
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
