"""The rules of retrying in a test's own words: how often a request may be sent, and no more.

It shares nothing with the code under test. A case names everything that matters; the
rules below are read from top to bottom, and the first that says no gives the reason.
"""

from dataclasses import dataclass
from typing import Literal

ATTEMPTS = 3
BUFFER = 64

Rule = Literal["every method", "if repeatable", "never"]
RETRIED: dict[str, Rule] = {
    "connect": "every method",
    "refused": "every method",
    "reset": "if repeatable",
    "timeout": "if repeatable",
    "status": "if repeatable",
    "protocol": "if repeatable",
    "certificate": "never",
    "busy": "never",
    "truncated": "never",
}
NEVER_SENT = {"connect", "certificate", "busy"}
HARMLESS_TWICE = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"}
USUAL_KEY = "Idempotency-Key"


@dataclass(frozen=True)
class Fault:
    """What the upstream does to every attempt, as a row of the table."""

    kind: str
    status: int = 0
    """Of the response, if there is one."""
    listed: bool = True
    """Whether ``on`` names it."""
    to_early_data: bool = False
    """Whether the request says that it came before a handshake was complete (RFC 8470)."""
    lasts: bool = False
    """Whether it befalls every attempt, whatever the case says."""

    @property
    def label(self) -> str:
        """What metrics and log call it."""
        return f"{self.status // 100}xx" if self.kind in {"refused", "status"} else self.kind


@dataclass(frozen=True)
class Body:
    """What the client sends."""

    size: int = 0
    framing: Literal["none", "length", "chunked"] = "none"


@dataclass(frozen=True)
class Case:
    """One request, and the promises under which it is made."""

    method: str
    key: str = ""
    """Header that carries a key; empty: none does."""
    honours: str = ""
    """Header whose key the upstream runs once; empty: it promises nothing."""
    unsafe: str = "auto"
    body: Body = Body()
    failures: int = ATTEMPTS
    """How many attempts the fault befalls; the one after them succeeds."""


@dataclass(frozen=True)
class Expected:
    """How many attempts there are, and why the last one was the last."""

    attempts: int
    why: str


def expected(case: Case, fault: Fault) -> Expected:
    """What the rules make of *case* when its attempts meet with *fault*."""
    refusal = refusal_to_repeat(case, fault)
    if refusal is not None:
        return Expected(1, refusal)
    allowed = 2 if fault.status == 421 else ATTEMPTS
    if case.failures < allowed and not fault.lasts:
        return Expected(case.failures + 1, "recovered")
    return Expected(allowed, "attempts_exhausted")


def refusal_to_repeat(case: Case, fault: Fault) -> str | None:
    """Why not even a second attempt may follow the first; None if one may."""
    if fault.kind == "truncated":
        return "response_started"
    if RETRIED[fault.kind] == "never" or not fault.listed:
        return reason_for_what_is_not_listed(fault)
    if fault.status == 425 and fault.to_early_data:
        return "not_retryable_status"  # only its client can know whether it was replayed
    if not may_be_repeated_after(case, fault):
        return "not_repeatable"
    too_large = case.body.size > BUFFER and fault.kind not in NEVER_SENT
    return "body_too_large" if too_large else None


def reason_for_what_is_not_listed(fault: Fault) -> str:
    if not fault.status:
        return "not_retryable_kind"
    return "not_retryable_status" if fault.status >= 500 else "success"


def may_be_repeated_after(case: Case, fault: Fault) -> bool:
    if fault.kind == "connect" or is_repeatable(case):
        return True
    if case.unsafe == "never":
        return False
    return RETRIED[fault.kind] == "every method"


def is_repeatable(case: Case) -> bool:
    if case.method in HARMLESS_TWICE or case.unsafe == "always":
        return True
    honoured = case.key != "" and case.key == case.honours
    return case.unsafe == "auto" and takes_keys(case) and honoured


def takes_keys(case: Case) -> bool:
    return case.method in {"POST", "PATCH"}
