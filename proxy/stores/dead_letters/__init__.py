"""The store of dead letters: one file, shared by the processes of one machine.

1.  A dead letter is on disk before its client is told of it: SQLite waits for the disk at each
    commit (``table.py``), and one thread has the connection, so the event loop does not wait.
2.  A dead letter that is being replayed names the process that does it. Whether that process is
    alive is known from a lock that the kernel releases when it dies (``sqlite_file/presence.py``):
    a replay that it left behind is *uncertain*, for all others at once.
3.  The number of dead letters and their bytes are bounded (``store.py``); one caller has at most
    half of that while others have any, and seven eighths alone. What does not fit is not kept, and
    its client is not told that it is: an older one that a client was promised is never evicted for
    it.
4.  A full disk can be cleared: some space is set aside for commands that free space, and what is
    free in the file is given back (``sqlite_file/reserve.py``).

It imports ``core``, ``policy``, ``http`` and ``stores/sqlite_file``; others use
:class:`DeadLetterStore`.
"""

from proxy.stores.dead_letters.file import FILE
from proxy.stores.dead_letters.store import DeadLetterStore

__all__ = ["FILE", "DeadLetterStore"]
