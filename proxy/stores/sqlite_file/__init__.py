"""One SQLite file and the thread that has its connection, for the stores that have tables in it.

``opening`` makes and checks the file, ``thread`` runs commands on it in transactions, ``columns``
declares what is in a table, and ``reserve`` is for a full disk. They import only the ports of
``stores``; ``stores/sqlite`` and ``stores/dead_letters`` use them.
"""
