"""The store of one machine: idempotency keys in a file that its processes share.

Three ideas, and where to read them:

1.  Each change is one transaction that locks the file before it reads; what was written
    survives the death of any process (``table.py``).
2.  One thread has the connection, so the event loop never waits for a disk. Commands that have
    queued up meanwhile go into one transaction, and large results wait until there is nothing
    else to do; another thread reads those, so that no claim waits behind them
    (``sqlite_file/thread.py``).
3.  Leases are in seconds of the machine's monotonic clock, which cannot be set, and end with its
    uptime (``table.py``); only how long a result is kept goes by the date.

``store.py`` is the asynchronous interface: it limits how long a request waits, looks for keys that
other processes have set free, and deletes what has expired. It imports ``core``, ``policy``,
``stores/sqlite_file`` and, for limits, ``stores/memory``; others use :class:`SqliteStore`.
"""

from proxy.stores.sqlite.store import OPERATIONS, SqliteStore, open_sqlite
