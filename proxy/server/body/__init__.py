"""Request bodies: streamed or buffered, kept for another attempt within shared memory.

``streaming`` reads a body that is still coming, ``buffered`` has one that came with its head;
``pieces`` keeps a body for another attempt, ``replay_memory`` shares memory fairly among callers,
``memory_budget`` has the bounds on requests that are still coming. Their exchange is seen through
the ports in ``uploads``. May import ``core``, ``policy``, ``http``, ``router`` and
``idle_timer``.
"""
