"""Value types of outcomes of an attempt: kinds of failure, statuses, and classes of statuses."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.other_products import by_other_word
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import Integer, JsonSchema, ValueType, either, merged, string_schema
from proxy.policy.settings import (
    REFUSALS,
    USUAL_KINDS,
    USUAL_OUTCOMES,
    USUAL_REFUSALS,
    USUAL_STATUSES,
    Outcomes,
)

BUILT_IN = (*USUAL_KINDS, *USUAL_STATUSES)
"""The default of ``retry.on``, for which ``default`` stands in a list."""

_KINDS = (*USUAL_KINDS, "protocol")

_NEVER = {
    "certificate": "a peer that is not trusted would not be the next time",
    "busy": "there was no free connection, and a retry would want one more",
    "truncated": "the client has the beginning of the answer",
    "unknown": "what happened is unknown",
    "cancelled": "the client left",
}
"""Outcomes after which nothing can be done, each with the reason."""

_FOR_DEAD_LETTERS = {
    **dict.fromkeys(("certificate", "busy", "unknown"), "is always kept, remove it"),
    "truncated": "is never kept (the client has the beginning of the answer), remove it",
    "cancelled": "is never kept (the client left), remove it",
    **dict.fromkeys(
        ("breaker_open", "throttled", "store", "overload", "draining"),
        "is a refusal of our own, write refusals for all of them",
    ),
}
"""What to write for these outcomes in the list of dead letters."""

_SYNONYMS = by_other_word(
    {
        "connect": "connect-failure conn-failure connection connection-error connection_error "
        "connect_error connection-failure unreachable dns ECONNREFUSED",
        "reset": "empty-response reset-before-request disconnect disconnected ECONNRESET",
        "timeout": "response-timeout timed_out timedout deadline-exceeded ETIMEDOUT",
        "protocol": "junk-response invalid_header",
        "refused": "refused-stream",
        "connect, reset": "error network-error network_error",
        "502, 503, 504": "gateway-error",
        "409": "retriable-4xx",
        "default": "all-retryable-errors all any retriable-status-codes",
        "5xx": "500-599 server-error server_error",
        "4xx": "400-499",
        "429": "rate-limited ratelimited rate_limited too-many-requests",
    }
)
"""Words of other products → ours."""

# With these statuses an upstream says that it can never do this: a retry would get the same.
_NOT_IN_A_CLASS = frozenset({501, 505})

_HINTED = re.compile(r"([45][0-9]{2})\+hint")
_CLASS = re.compile(r"[45]xx")


def statuses_of(outcome: str | int) -> frozenset[int]:
    """Return the statuses that *outcome* stands for, with or without a hint."""
    if isinstance(outcome, int):
        return frozenset({outcome})
    if not _CLASS.fullmatch(outcome):
        return frozenset()
    first = int(outcome[0]) * 100
    return frozenset(range(first, first + 100)) - _NOT_IN_A_CLASS


def hinted_status(outcome: str | int) -> int | None:
    """Return the status of an outcome that needs a hint: 403 for ``403+hint``; else None."""
    found = _HINTED.fullmatch(str(outcome))
    return int(found[1]) if found else None


def outcomes_of(items: Iterable[str | int], default: Outcomes = USUAL_OUTCOMES) -> Outcomes:
    """Split a list of outcomes into sets for look-up; ``default`` stands for *default*."""
    words: set[str] = set()
    statuses: set[int] = set()
    hinted: set[int] = set()
    for item in items:
        status_with_hint = hinted_status(item)
        if item == "default":
            words |= default.names
            statuses |= default.statuses
            hinted |= default.hinted
        elif status_with_hint is not None:
            hinted.add(status_with_hint)
        elif found := statuses_of(item):
            statuses |= found
        else:
            words.add(str(item))
    return Outcomes(frozenset(words), frozenset(statuses), frozenset(hinted))


@dataclass(frozen=True, slots=True)
class OutcomeName(ValueType[str | int]):
    """One item of ``on``: a status as a number, any other outcome as a word."""

    action: str = "retried"
    """What is done after it: a request is ``retried`` or ``kept``, a response ``replaced``."""
    extra: tuple[str, ...] = ()
    """Words that only this list accepts."""
    noun = "outcome"
    example = "503"
    examples = (503,)
    synonyms = _SYNONYMS

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are accepted: kinds of failure, and ``default``."""
        return (*_KINDS, *self.extra, "default")

    def read(self, scalar: Scalar) -> str | int:
        text = scalar.text
        if text in self.words or _CLASS.fullmatch(text) or _HINTED.fullmatch(text):
            return text
        if re.fullmatch(r"[45][0-9]{2}", text):
            return int(text)
        raise InvalidValue(self._error_text(scalar))

    def _error_text(self, scalar: Scalar) -> str:
        text, shown = scalar.text, scalar.shown
        if REFUSALS in self.extra and (instead := _FOR_DEAD_LETTERS.get(text)):
            return f"{shown} {instead}"
        if text in _NEVER:
            return f"{shown} is never {self.action} ({_NEVER[text]}), remove it"
        if text == "breaker_open":
            return f"{shown} is never retried, write it in fallback.on"
        if text == REFUSALS:
            return f"{shown} are never {self.action}, write it in dead_letter.on"
        if re.fullmatch(r"[0-9]{1,4}|[0-9]xx", text):
            return f"{text} is no failure, write a status from 400 to 599, 4xx or 5xx"
        return f"{shown} is no outcome, {self._instead_of(text)}"

    def _instead_of(self, text: str) -> str:
        status = re.fullmatch(r"(?:http_)?([45](?:[0-9]{2}|xx))", text.lower())
        ours = status[1] if status else self.synonyms.get(text)
        if ours:
            return f"write {ours}"
        if re.fullmatch(r"[0-9]xx\+hint", text):
            return "write a single status with a hint: 503+hint (say)"
        if re.fullmatch(r"[0-9]{3}-[0-9]{3}", text):
            return "write each status as an item, or a class such as 5xx"
        near = self.meant(text)
        if near:
            return f"did you mean {near}?"
        return f"write some of {', '.join(self.words)}, 503, 5xx, 403+hint"

    @property
    def expects(self) -> str:
        words = ", ".join(self.words)
        return f"a status from 400 to 599, 4xx, 5xx, 403+hint (say), or one of {words}"

    def accepted(self) -> JsonSchema:
        status = {"type": "integer", "minimum": 400, "maximum": 599}
        numbers = merged(status, string_schema(r"^[45][0-9]{2}(\+hint)?$"))
        return either({"enum": [*self.words, "4xx", "5xx"]}, "a status", numbers)


@dataclass(frozen=True, slots=True)
class Status(Integer):
    """The status of a response."""

    least: int = 400
    most: int = 599
    noun = "status in range"
    example = "503"

    def read(self, scalar: Scalar) -> int:
        if scalar.text == "default":
            raise InvalidValue(
                f"default has no meaning here, write {', '.join(map(str, USUAL_REFUSALS))}"
            )
        if re.fullmatch(r"[1-9]xx", scalar.text):
            raise InvalidValue(f"{scalar.shown} is many statuses, write each: {self.example} (say)")
        # Explicit base: zero-argument super() does not survive slots=True.
        return Integer.read(self, scalar)
