"""One SQLite file and the thread that has its connection, for the stores that have tables in it.

``opening`` makes and checks the file, ``thread`` runs commands on it in transactions, ``columns``
declares what is in a table, ``presence`` tells which processes are alive, and ``reserve`` is for a
full disk. They import only the ports of ``stores``; ``stores/sqlite``, ``stores/dead_letters`` and
``stores/deliveries`` use them.
"""
