"""A proxy that ends at a chosen place, without a word; run as a module.

It is given the place, and then what ``holdfast`` is given. SQLite itself tells which statement it
is about to run; the other places are between a transaction and whoever waits for it.
"""

import os
import sqlite3
import sys
from typing import Any

from proxy.cli import main
from proxy.stores.sqlite_file import thread

STATUS = 77
PLACES = {
    "accept": "INSERT INTO deliveries",
    "take": "UPDATE deliveries SET state = 'sending'",
    "settle": "UPDATE deliveries SET owner = ''",
}
_connect = sqlite3.connect
_tell = thread.FileThread._tell
_is_armed = _is_written = False


def begin(place: str) -> None:
    """End before what *place* names is written, or ``after`` it and before anybody hears of it."""
    when, _, name = place.partition(" ")
    fatal = PLACES[name]

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - as connect() has them
        db: sqlite3.Connection = _connect(*args, **options)

        def about_to_run(statement: str) -> None:
            global _is_armed, _is_written  # noqa: PLW0603 - the loop's thread reads it
            # The dispatcher looks for what is due from its start.
            _is_armed = _is_armed or PLACES["accept"] in statement
            if _is_armed and fatal in statement:
                if when == "before":
                    os._exit(STATUS)
                _is_written = True

        db.set_trace_callback(about_to_run)
        return db

    def tell(file: thread.FileThread[Any], *args: Any) -> None:  # noqa: ANN401 - as it is given
        if _is_written:
            os._exit(STATUS)  # in the thread of the file: the loop has heard nothing
        _tell(file, *args)

    sqlite3.connect = traced  # type: ignore[assignment]  # see above
    thread.FileThread._tell = tell  # type: ignore[method-assign, assignment]  # it watches the real one
    thread._MOST = 1  # nothing else is written in the same transaction


if __name__ == "__main__":
    begin(sys.argv.pop(1))
    main(prog_name="holdfast")
