"""The engine of deliveries: requests that were handed off, in the file of the dead letters.

1.  A delivery is on disk before its client is told of it, and ``sending`` is on disk before its
    first byte. All that is asked for meanwhile shares one wait for the disk.
2.  One process of a machine delivers: the one that holds the lock (``lock.py``). The others insert
    and wake it. If it dies another takes over, and decides about what was ``sending``.
3.  Entries and bytes are bounded (``capacity.py``), and no caller takes all. What was accepted is
    never evicted: what does not fit is refused.
4.  Due times are those of the file's own clock (``file_clock.py``): a wall clock that is set
    neither delays nor hastens anything.
5.  ``failed`` is the dead letter: the same row, under the same id.

It imports ``core``, ``policy``, ``http``, ``stores/sqlite_file`` and ``stores/dead_letters``, whose
file it is; others use what is exported here.
"""

from proxy.stores.deliveries.ports import (
    Abandoned,
    Accepted,
    AcceptUncertain,
    CapacityReservation,
    DeliveryPage,
    DeliveryStore,
    Gone,
    HeldKey,
    Mismatch,
    NewDelivery,
    NoCapacity,
    ShownDelivery,
    Taken,
    TakenBatch,
)
from proxy.stores.deliveries.store import FileDeliveryStore

__all__ = [
    "Abandoned",
    "AcceptUncertain",
    "Accepted",
    "CapacityReservation",
    "DeliveryPage",
    "DeliveryStore",
    "FileDeliveryStore",
    "Gone",
    "HeldKey",
    "Mismatch",
    "NewDelivery",
    "NoCapacity",
    "ShownDelivery",
    "Taken",
    "TakenBatch",
]
