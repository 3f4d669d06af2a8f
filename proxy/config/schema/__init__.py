"""Every key of the file: its value type, its default and its text, one module per section.

The only place where keys are listed. The reader walks these sections to check a file, ``holdfast
schema`` prints them as JSON Schema (``json_schema.py``), and the settings are built from them.
Defaults are written as a user would write them, so that the schema shows them in that form; the
reader reads them like any other value. The docstring of a section is its description in the JSON
Schema, so users see it. May import ``values/``, ``source/``, ``diagnostics/`` and
``policy/settings/``.
"""

from proxy.config.schema.dead_letter import DeadLetterKeys, LetterHeaderKeys
from proxy.config.schema.file import FileKeys
from proxy.config.schema.idempotency import IdempotencyKeys
from proxy.config.schema.listen import LimitKeys, ListenOn, ListenTlsKeys
from proxy.config.schema.retry import BackoffKeys, FallbackKeys, RetryAfterKeys, RetryKeys
from proxy.config.schema.route import HeaderEditKeys, HeadersKeys, MatchKeys, PolicyKeys, RouteKeys
from proxy.config.schema.section import Section
from proxy.config.schema.store import StoreKeys
from proxy.config.schema.throttle import PauseKeys, ThrottleKeys
from proxy.config.schema.upstream import (
    BreakerKeys,
    BudgetKeys,
    HonoursKeyKeys,
    UpstreamKeys,
    UpstreamTlsKeys,
)

__all__ = [
    "BackoffKeys",
    "BreakerKeys",
    "BudgetKeys",
    "DeadLetterKeys",
    "FallbackKeys",
    "FileKeys",
    "HeaderEditKeys",
    "HeadersKeys",
    "HonoursKeyKeys",
    "IdempotencyKeys",
    "LetterHeaderKeys",
    "LimitKeys",
    "ListenOn",
    "ListenTlsKeys",
    "MatchKeys",
    "PauseKeys",
    "PolicyKeys",
    "RetryAfterKeys",
    "RetryKeys",
    "RouteKeys",
    "Section",
    "StoreKeys",
    "ThrottleKeys",
    "UpstreamKeys",
    "UpstreamTlsKeys",
]
