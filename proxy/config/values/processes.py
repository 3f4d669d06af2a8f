"""Value type of the number of worker processes."""

import re

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import Integer, JsonSchema, ValueType

MOST_WORKERS = 256
"""Upper bound: more cores than any machine has for a sidecar."""


class WorkerCount(ValueType[int | None]):
    """The number of worker processes; None is ``auto``: one for each usable core."""

    none = True
    noun = "number of workers"
    example = "2"

    def read(self, scalar: Scalar) -> int | None:
        if scalar.text == "auto":
            return None
        if not re.fullmatch(r"[-+]?[0-9]+", scalar.text):
            raise InvalidValue(
                f"{scalar.shown} is no number of workers, write {self.example} (say), or auto for "
                f"one per core"
            )
        return self._number.read(scalar)

    @property
    def _number(self) -> Integer:
        return Integer(1, MOST_WORKERS, zero="workers would serve nothing, write 1 or auto")

    def write(self, value: int | None) -> int | str:
        return "auto" if value is None else value

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [{"const": "auto"}, *self._number.json_schema()["anyOf"]]}
