"""Keys of the store."""

from typing import Annotated

from proxy.config.schema.section import Section, described
from proxy.config.schema.upstream import UpstreamTlsKeys
from proxy.config.values.base import Integer
from proxy.config.values.quantities import Duration, Size
from proxy.config.values.stores import KeyPrefix, Password, RedisUrl, SqliteFile, StoreUrl, Username
from proxy.config.values.throttling import DurationOrAuto


class StoreKeys(Section):
    """Where limits are counted and idempotency keys are kept."""

    belongs_to = "store"

    url: Annotated[RedisUrl | SqliteFile | None, StoreUrl()] = described(
        "memory (of this process), sqlite:PATH (a file for idempotency keys; limits are counted in "
        "memory), or redis://user:password@host:port/database, rediss:// for TLS."
    )
    username: Annotated[str | None, Username()] = described("In place of the URL's.", None)
    password: Annotated[str | None, Password()] = described("In place of the URL's.", None)
    prefix: Annotated[str, KeyPrefix()] = described(
        "What the names of all keys in it begin with. Instances with the same one share limits and "
        "idempotency keys.",
        "holdfast",
    )
    timeout: Annotated[
        float,
        Duration(
            zero="leaves no time for any answer, write 200ms (say)",
            longest=10.0,
            units=("ms",),
            example="200ms",
        ),
    ] = described("How long it may take to answer, before on_store_error decides.", "200ms")
    permit_life: Annotated[
        float | None,
        DurationOrAuto(
            Duration(
                zero="leaves no time to use what redis gave, write auto or 100ms (say)",
                least=0.01,
                longest=1.0,
                units=("ms",),
                example="auto, or 100ms",
            )
        ),
    ] = described(
        "How long a call that redis let through may be kept before it is sent; twice the time to "
        "redis, at least. auto: a 40th of the rate's time, 10ms to 100ms. The longer, the less of "
        "the rate is used.",
        "auto",
    )
    tls: UpstreamTlsKeys = described("For rediss URLs.", {})
    entries: Annotated[
        int, Integer(least=1, most=100_000_000, zero="would keep nothing, write 100000 (say)")
    ] = described("Most idempotency keys in memory.", 100_000)
    bytes: Annotated[int, Size(least=1024)] = described(
        "Most memory for them and their results.", "64MiB"
    )
