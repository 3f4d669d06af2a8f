"""Keys of a throttle."""

from proxy.config.schema.section import Key, ListOf, Section
from proxy.config.schema.shorthands import OneOrMore, SetsKey, Switchable
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
from proxy.policy.settings import ThrottleSettings

PAUSE = Section(
    "PauseKeys",
    "Whether an upstream that refuses a call may ask for a pause, for all callers.",
    belongs_to="throttle.pause",
    settings=ThrottleSettings,
    shorthands=(Switchable(),),
    keys={
        "max": Key(
            Duration(zero="would obey no pause, write pause: false if that is meant"),
            "Longest pause; a longer one is cut to this.",
            to="longest_pause",
            written="60s",
        ),
    },
)

THROTTLE = Section(
    "ThrottleKeys",
    "How many calls are let through, and who waits for how long.",
    belongs_to="throttle",
    settings=ThrottleSettings,
    shorthands=(Switchable(), SetsKey("rate", named=True)),
    keys={
        "rate": Key(
            ListOf(CallRate(), OneOrMore(none=True)),
            "Calls in a time: 100/s, 600/m, 10/500ms; or a list of which all hold: [10/s, 5000/h].",
            to="rates",
        ),
        "burst": Key(
            BURST,
            "none: never more than the rate's number in any window of its length, as the upstream "
            "counts them. A number B: B calls may go out at once, and B - 1 more in one window.",
        ),
        "algorithm": Key(
            ALGORITHM,
            "gcra lets calls through at even intervals; window as soon as the rate's number "
            "allows, without a burst, and is not shared over redis.",
        ),
        "margin": Key(
            DurationOrAuto(Duration(longest=60.0, units=("ms",), example="auto, or 20ms")),
            "By how much the time from sending to arrival may vary. auto: a fiftieth of the rate's "
            "time, at most 50ms. 0s: no margin.",
        ),
        "concurrency": Key(
            CONCURRENCY, "Most calls in flight, from sending to the last byte of the response."
        ),
        "max_wait": Key(
            Duration(none=True),
            "Longest wait before each attempt; beyond it 429, at once. 0s: no wait. none: as long "
            "as timeout allows.",
        ),
        "max_queue": Key(
            Integer(least=0), "Most requests that wait; beyond it 429. 0: none waits."
        ),
        "key": Key(
            CallerKey(),
            "What tells callers apart, each with a limit of its own: none, client_ip, header:NAME "
            "or query:NAME. Those without a value share one.",
        ),
        "max_keys": Key(
            Integer(least=1, zero="would tell no caller apart, write key: none if that is meant"),
            "Most callers that are told apart at a time; new ones beyond share 256 limits, unless "
            "the upstream has answered them below 400 before.",
        ),
        "pause": Key(
            PAUSE,
            "Whether to stop sending for a time if a refusal of the upstream asks for it.",
        ),
        "on_store_error": Key(
            ON_STORE_ERROR,
            "While redis does not answer: local (each instance its share of the limit), open (no "
            "limit) or closed (503).",
        ),
    },
)
