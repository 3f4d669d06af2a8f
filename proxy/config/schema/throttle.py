"""Keys of a throttle."""

from typing import Annotated, Literal

from proxy.config.schema.section import Section, described
from proxy.config.schema.shorthands import JoinedByColon, OneOrMore, SetsKey, Switchable
from proxy.config.values.base import Integer
from proxy.config.values.quantities import Duration
from proxy.config.values.rates import CallRate
from proxy.config.values.throttling import (
    ALGORITHM,
    BURST,
    CONCURRENCY,
    ON_STORE_ERROR,
    CallerKey,
    DurationOrAuto,
)
from proxy.policy.settings import Rate, RateAlgorithm, ThrottleKey, ThrottleWithoutStore


class PauseKeys(Section):
    """Whether an upstream that refuses may say when to come back, for everybody."""

    belongs_to = "throttle.pause"

    max: Annotated[
        float, Duration(zero="would obey no pause, write pause: false if that is meant")
    ] = described("Longest pause; of one that asks for more, this much is obeyed.", "60s")


class ThrottleKeys(Section):
    """How many calls are let through, and who waits for how long."""

    belongs_to = "throttle"

    rate: Annotated[list[Annotated[Rate, CallRate()]], OneOrMore(none=True)] = described(
        "Calls in a time: 100/s, 600/m, 10/500ms; or a list of which all hold: [10/s, 5000/h].",
        "none",
    )
    burst: Annotated[int | None, BURST] = described(
        "none: never more than the rate's number in any window of its length, as the upstream "
        "counts them. A number B: B calls may go out at once, and B - 1 more in one window.",
        "none",
    )
    algorithm: Annotated[RateAlgorithm, ALGORITHM] = described(
        "gcra lets calls through at even intervals; window as soon as the rate's number allows, "
        "without a burst, and is not shared over redis.",
        "gcra",
    )
    margin: Annotated[
        float | None,
        DurationOrAuto(Duration(longest=60.0, units=("ms",), example="auto, or 20ms")),
    ] = described(
        "By how much the time from sending to arrival may vary. auto: a fiftieth of the rate's "
        "time, at most 50ms. 0s trusts our own clock.",
        "auto",
    )
    concurrency: Annotated[int | None, CONCURRENCY] = described(
        "Most calls in flight, from sending to the last byte of the response.", "none"
    )
    max_wait: Annotated[float | None, Duration(none=True)] = described(
        "Longest wait before each attempt; beyond it 429, at once. 0s: no wait. none: as long as "
        "timeout allows.",
        "5s",
    )
    max_queue: Annotated[int, Integer(least=0)] = described(
        "Most that wait; beyond it 429. 0: nobody waits.", 1000
    )
    key: Annotated[ThrottleKey | None, CallerKey(), JoinedByColon()] = described(
        "What tells callers apart, each with a limit of its own: none, client_ip, header:NAME or "
        "query:NAME. Those without a value share one.",
        "none",
    )
    max_keys: Annotated[
        int, Integer(least=1, zero="would tell nobody apart, write key: none if that is meant")
    ] = described(
        "Most callers that are told apart at a time; new ones beyond share 256 limits, unless the "
        "upstream has answered them below 400 before.",
        10_000,
    )
    pause: Annotated[PauseKeys | Literal[False], Switchable()] = described(
        "Whether to send nothing for as long as an upstream says that refused a call.", {}
    )
    on_store_error: Annotated[ThrottleWithoutStore, ON_STORE_ERROR] = described(
        "While redis does not answer: local (each instance its share of the limit), open (no "
        "limit) or closed (503).",
        "local",
    )


Throttle = Annotated[
    ThrottleKeys | Literal[False], Switchable(), SetsKey("rate", CallRate(), named=True)
]
