"""Value types of retries: number of attempts, unsafe methods, jitter."""

from dataclasses import dataclass

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.other_products import by_other_word
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import Choice, Integer, Number, ValueType, either
from proxy.policy.settings import JitterStrategy, UnsafeRetries


@dataclass(frozen=True, slots=True)
class AttemptCount(Integer):
    """The number of attempts of a request, the first one included."""

    least: int = 1
    most: int = 100
    zero: str = (
        "attempts would send nothing (the first call counts), write retry: false to switch "
        "retries off"
    )
    example = "3"


class Unsafe(Choice[UnsafeRetries]):
    """Whether a POST or PATCH that may have run is sent again."""

    def __init__(self) -> None:
        super().__init__(*UnsafeRetries)

    def read(self, scalar: Scalar) -> UnsafeRetries:
        if scalar.type != "bool":
            return super().read(scalar)
        instead = (
            "always to repeat every POST, which may run it twice"
            if scalar.text[0] in "tT"
            else "never to repeat no POST that may have been sent"
        )
        raise InvalidValue(f"{scalar.shown} is none of {', '.join(self.words)}; write {instead}")


class Jitter(ValueType[JitterStrategy | float]):
    """A jitter strategy, or the share by which delays may vary."""

    noun = "jitter"
    example = "full"
    expects = f"{', '.join(JitterStrategy)}, or a number from 0 to 1 (0.2: 20 % less or more)"
    examples = (0.2,)
    words = tuple(map(str, JitterStrategy))
    synonyms = by_other_word({"full": "random", "none": "off no"})
    schema = either({"enum": [*map(str, JitterStrategy)]}, "a share", Number(0, 1).accepted())

    def read(self, scalar: Scalar) -> JitterStrategy | float:
        for strategy in JitterStrategy:
            if scalar.text == strategy:
                return strategy
        if scalar.type in {"int", "float"} or scalar.text.endswith("%"):
            return Number(0, 1).read(scalar)
        near = self.meant(scalar.text)
        if near:
            hint = f"did you mean {near}?"
        else:
            hint = "write one of them, or a number from 0 to 1 (0.2 is ±20 %)"
        raise InvalidValue(f"{scalar.shown} is none of {', '.join(self.words)}; {hint}")

    def write(self, value: JitterStrategy | float) -> str | float:
        return str(value) if isinstance(value, str) else Number(0, 1).write(value)
