"""Dead letters in a file, shared by the processes of one machine.

1.  A letter is on disk before anybody hears of it: SQLite waits for the disk at each commit
    (``table.py``), and one thread has the connection, so the loop does not.
2.  A letter that is being sent again says by whom. Whether that process is alive is known
    from a lock that the system takes away when it dies (``presence.py``): what it left behind
    is *uncertain*, for all others at once.
3.  There is room for so many letters and so many bytes (``store.py``), of which one caller has
    at most half while others have any, and seven eighths alone. What does not fit is not kept,
    and its client is not told that it is: an older letter that somebody was promised is never
    given up for it.
4.  A full disk can be cleared: some room is set aside for commands that make room, and what is
    free in the file is given back (``reserve.py``).
"""

from proxy.stores.dead_letters.store import FILE, DeadLetterStore

__all__ = ["FILE", "DeadLetterStore"]
