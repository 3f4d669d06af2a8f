"""Idempotency keys in a file, shared by the processes of one machine.

Three ideas, and where to read them:

1.  Each change is one transaction that has the file to itself before it reads; what was
    written survives the death of any process (``table.py``).
2.  One thread has the connection, so the loop never waits for a disk. What has queued up
    meanwhile goes into one transaction, and large results wait until there is nothing else
    to do; another thread reads those, so that no claim waits behind them (``thread.py``).
3.  Leases are in the machine's own seconds, which nobody sets, and end with its uptime
    (``table.py``); only how long a result is kept goes by the date.

``store.py`` is what the rest of the house sees: it limits how long anybody waits, looks
for keys that others have set free, and clears away what has expired.
"""

from proxy.stores.sqlite.store import OPERATIONS, SqliteStore

__all__ = ["OPERATIONS", "SqliteStore"]
