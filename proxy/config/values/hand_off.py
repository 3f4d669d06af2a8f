"""Value types of hand-off: when and with what it is done, attempts, success, the status path."""

from collections.abc import Iterable

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import Choice, CountOrWord, Integer, ValueType, either
from proxy.config.values.idempotency import KeptStatus
from proxy.config.values.paths import PathPrefix
from proxy.policy.settings import MOST_DELIVERY_ATTEMPTS, HandOffCredentials, HandOffWhen

WHEN = Choice(
    *HandOffWhen,
    synonyms={
        "asked": "prefer respond-async on_request requested",
        "failed": "failure on_failure error offline",
        "always": "all async",
    },
)
"""Which requests are handed off."""

CREDENTIALS = Choice(
    *HandOffCredentials,
    synonyms={"refuse": "deny reject", "store": "keep save", "drop": "remove strip"},
)
"""What becomes of the credentials of a client."""


class DeliveryAttempts(CountOrWord):
    """The number of attempts of a delivery; None is ``none``: only its age ends it."""

    noun = "whole number in range"
    example = "6"
    word = "none"
    number = Integer(
        1, MOST_DELIVERY_ATTEMPTS, zero="attempts would deliver nothing, write none for no limit"
    )
    reason = " or none for no limit"


class DeliveredStatus(KeptStatus):
    """One item of ``success``: a status as a number, or a class of statuses as a word."""

    noun = "status that can mean success"


def delivered_statuses(items: Iterable[str | int]) -> frozenset[int]:
    """Return the statuses that a list of ``success`` stands for."""
    found = set[int]()
    for item in items:
        first = int(str(item)[0]) * 100
        found |= {item} if isinstance(item, int) else {*range(first, first + 100)}
    return frozenset(found)


class StatusPath(ValueType[str | None]):
    """The path at which clients ask for their deliveries; None is ``false``: there is none."""

    none = True
    noun = "path"
    example = "/.holdfast/deliveries"
    expects = f"a path that ends without a slash ({example}), or false for none"
    examples = (example, False)
    schema = either({"enum": [False]}, "a path", PathPrefix.schema)

    def read(self, scalar: Scalar) -> str | None:
        if scalar.type == "bool":
            if scalar.text[0] in "fF":
                return None
            raise InvalidValue(f"{scalar.text} is no path, write {self.example} or false")
        if scalar.text == "/":
            raise InvalidValue(f"/ would take every request, write {self.example} (say)")
        return PathPrefix().read(scalar)

    def write(self, value: str | None) -> object:
        return False if value is None else value
