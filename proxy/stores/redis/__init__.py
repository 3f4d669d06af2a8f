"""What any number of instances share, kept in Redis or Valkey: limits, and idempotency keys.

Six ideas, and where to read them:

1.  The server's clock decides, in scripts that are one step each (``*.lua``).
2.  Permits are lent ahead, in lots that lapse so soon that the limit holds whatever
    happens to the borrower (``terms.py`` has the arithmetic, ``leases.py`` the lots).
3.  Places are reported as they are, never added or taken away; who falls silent loses
    them (``places.py``).
4.  All buckets share one link. Its first failure brings it down, for everybody at once,
    and nobody asks until a probe succeeds (``link.py``); meanwhile ``on_store_error``
    says what stands in for it (``outage.py``). Large results have a connection of their
    own, behind which nothing else waits (``bulk.py``).
5.  Keys are waited for: whoever asks gets an answer in time, or an error (``claims.py``).
6.  A pause, and the end of a key that others wait for, is announced to everybody
    (``news.py``).

``permits.py`` puts these together for one bucket, ``store.py`` for all of them. Below them,
``connection.py`` speaks the server's protocol and ``dialling.py`` logs in.
"""

from proxy.stores.redis.scripts import OPERATIONS
from proxy.stores.redis.store import RedisStore

__all__ = ["OPERATIONS", "RedisStore"]
