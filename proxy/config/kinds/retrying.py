"""How often, how boldly and how evenly spread requests are sent again."""

from dataclasses import dataclass

from proxy.config.faults import Mistake
from proxy.config.kinds.base import Choice, Integer, JsonSchema, Kind, Number
from proxy.config.nodes import Scalar

_JITTERS = ("full", "equal", "decorrelated", "none")


@dataclass(frozen=True, slots=True)
class Attempts(Integer):
    """How often a request is sent in total, the first time included."""

    least: int = 1
    most: int = 100
    zero: str = (
        "attempts would send nothing (the first call counts), write retry: false to switch "
        "retries off"
    )
    example = "3"


class Unsafe(Choice):
    """Whether a POST or PATCH that may have run is sent again."""

    def __init__(self) -> None:
        super().__init__("auto", "never", "always")

    def read(self, scalar: Scalar) -> str:
        if scalar.type != "bool":
            return super().read(scalar)
        instead = (
            "always to repeat every POST, which may run it twice"
            if scalar.text[0] in "tT"
            else "never to repeat no POST that may have been sent"
        )
        raise Mistake(f"{scalar.shown} is none of {', '.join(self.words)}; write {instead}")


@dataclass(frozen=True, slots=True)
class Jitter(Kind[str | float]):
    """A way to spread waits, or the share by which they may vary."""

    noun = "jitter"
    example = "full"

    def read(self, scalar: Scalar) -> str | float:
        if scalar.text in _JITTERS:
            return scalar.text
        if scalar.type in {"int", "float"} or scalar.text.endswith("%"):
            return Number(0, 1).read(scalar)
        raise Mistake(
            f"{scalar.shown} is none of {', '.join(_JITTERS)}; write one of them, or a number from "
            f"0 to 1 (0.2 is ±20 %)"
        )

    def write(self, value: str | float) -> str | float:
        return value if isinstance(value, str) else Number(0, 1).write(value)

    def json_schema(self) -> JsonSchema:
        return {"anyOf": [{"enum": list(_JITTERS)}, *Number(0, 1).json_schema()["anyOf"]]}
