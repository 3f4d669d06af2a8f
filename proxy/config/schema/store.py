"""Keys of the store."""

from typing import get_args

from proxy.config.schema.section import REQUIRED, Key, Section
from proxy.config.schema.shorthands import SetsKey
from proxy.config.schema.upstream import UPSTREAM_TLS
from proxy.config.values.base import Integer
from proxy.config.values.quantities import Duration, Size
from proxy.config.values.stores import KeyPrefix, Password, StoreUrl, Username, store_settings
from proxy.config.values.throttling import DurationOrAuto
from proxy.policy.settings import StoreSettings

STORE = Section(
    "StoreKeys",
    "Where limits are counted and idempotency keys are kept.",
    belongs_to="store",
    settings=get_args(StoreSettings),
    make=store_settings,
    shorthands=(SetsKey("url"),),
    keys={
        "url": Key(
            StoreUrl(),
            StoreUrl.kinds,
            written=REQUIRED,
        ),
        "username": Key(Username(), "In place of the one in the URL."),
        "password": Key(Password(), "In place of the one in the URL."),
        "prefix": Key(
            KeyPrefix(),
            "What the names of all keys in it begin with. Instances with the same one share limits "
            "and idempotency keys.",
        ),
        "timeout": Key(
            Duration(
                zero="leaves no time for any answer, write 200ms (say)",
                longest=10.0,
                units=("ms",),
                example="200ms",
            ),
            "How long it may take to answer, before on_store_error decides.",
        ),
        "permit_life": Key(
            DurationOrAuto(
                Duration(
                    zero="leaves no time to use what redis gave, write auto or 100ms (say)",
                    least=0.01,
                    longest=1.0,
                    units=("ms",),
                    example="auto, or 100ms",
                )
            ),
            "How long a call that redis let through may be kept before it is sent; twice the time "
            "to redis, at least. auto: a 40th of the rate's time, 10ms to 100ms. The longer, the "
            "less of the rate is used.",
        ),
        "tls": Key(UPSTREAM_TLS, "For rediss URLs.", written={}),
        "entries": Key(
            Integer(least=1, most=100_000_000, zero="would keep nothing, write 100000 (say)"),
            "Most idempotency keys in memory.",
        ),
        "bytes": Key(Size(least=1024), "Most memory for them and their results."),
    },
)
