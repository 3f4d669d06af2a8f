"""Several processes that serve as one: a supervisor, and workers under it.

::

    clients ─▶ supervisor: accepts, deals each connection to the worker with the fewest
                   │  door: sockets there, a sign back for each taken up and each ended
                   │  channel: configuration and questions there, answers and numbers back
               ┌───┴────┐
            worker    worker      each an App without listeners, in a process of its own
               └───┬────┘
               upstreams, store

The supervisor touches no request: to share the port costs something per connection, and
nothing per request. Connections are dealt, not left to the system (SO_REUSEPORT), because
a sidecar has few and keeps them long: chance would leave one worker idle.

- ``cores.py`` how many there are with ``workers: auto``; ``shares.py`` what of the limits
  each may use, so that all of them keep to the file.
- ``listening.py`` binds the addresses; ``dealing.py`` accepts and deals, ``door.py`` is the
  way of a connection from one process to the other.
- ``channel.py`` carries ``messages.py`` between the two.
- ``worker.py`` is the life of a worker; ``member.py`` what the supervisor knows of it.
- ``crew.py`` keeps as many alive as there should be; ``supervisor.py`` is what a user sees:
  start, reload, drain, and one admin listener for all of them.
"""
