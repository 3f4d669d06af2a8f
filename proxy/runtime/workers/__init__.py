"""Several processes that serve as one: a supervisor, and a pool of workers under it.

::

    clients ─▶ supervisor: accepts, passes each connection to the worker with the fewest
                   │  fd passing: sockets there, a sign back for each taken up and each ended
                   │  channel: configuration and requests there, answers and numbers back
               ┌───┴────┐
            worker    worker      each an App without listeners, in a process of its own
               └───┬────┘
               upstreams, store

The supervisor touches no request: sharing the port costs something per connection, and
nothing per request. The supervisor does the load balancing, not the system (SO_REUSEPORT), because
a sidecar has few connections and keeps them long: chance would leave one worker idle.

- ``cpu_quota.py`` says how many workers there are with ``workers: auto``; ``shares.py`` what part
  of the limits each may use, so that all of them together keep to the file.
- ``bind.py`` binds the addresses; ``acceptor.py`` accepts and chooses a worker, ``fd_passing.py``
  passes a connection from one process to the other.
- ``ipc.py`` has the messages between the two, and the channel that carries them.
- ``worker_main.py`` is the entry point of a worker's process and ``worker.py`` its life;
  ``worker_process.py`` is what the supervisor knows of it, heartbeat included.
- ``pool.py`` keeps as many workers alive as there should be; ``supervisor.py`` is what a user sees:
  start, reload, graceful shutdown, and one admin listener for all workers, which ``operations.py``
  has answer.

May import ``app/`` and the packages below it.
"""
