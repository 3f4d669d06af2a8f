"""The store of any number of instances, kept in Redis or Valkey: rate limits and idempotency keys.

Six ideas, and where to read them:

1.  The server's clock decides, in scripts that are one atomic step each (``scripts/*.lua``).
2.  Permits are lent ahead, in batches that lapse so soon that the limit holds whatever
    happens to the borrower (``lease_terms.py`` has the arithmetic, ``rates.py`` the batches).
3.  Concurrency slots are reported as they are, never added or taken away; an instance whose
    heartbeat stops loses them (``concurrency.py``).
4.  All buckets share one link. Its first failure takes it down, for all of them at once,
    and nothing is sent until a probe succeeds (``link.py``); meanwhile ``on_store_error``
    says what replaces it (``degraded.py``). Large results have a connection of their
    own, behind which nothing else waits (``bulk.py``).
5.  Claims of keys are awaited: a request gets an answer in time, or an error
    (``idempotency.py``).
6.  A pause, and the end of a key that others wait for, is published to all instances
    (publish/subscribe, ``pubsub.py``).

``limiter.py`` puts these together for one bucket, ``store.py`` for all of them. Below them,
``connection.py`` speaks the server's protocol and ``connect.py`` logs in. They import ``core``,
``policy``, ``http``, ``net`` and the driver, hiredis, so this package is loaded only where it is
configured.
"""

from proxy.stores.redis.scripts import OPERATIONS
from proxy.stores.redis.store import RedisStore, open_redis
