"""The process's own log: started, reloaded, draining, and its own errors.

One JSON object per line on stderr, or plain text if a person sits at the terminal.
Requests are not logged here; the access log has them.
"""

import json
import logging
import ssl
import time
from typing import TextIO

LOGGER = "holdfast"
"""Name of the logger; modules may add a part of their own, as ``holdfast.admin``."""

_FOREIGN = ("aiohttp", "asyncio")
"""Libraries whose warnings go to the same stream as our own."""

_BAD_CLIENT = (ConnectionError, ssl.SSLError)
"""Errors that a client can cause with a bad handshake or by leaving."""

_BAD_BYTES = "aiohttp.http_exceptions"
"""The module of the errors that a client can cause with bad bytes; by name, not to import it."""


def configure(stream: TextIO, worker: int | None = None) -> None:
    """Send our log, and warnings of the libraries below us, to *stream*.

    Lines of one *worker* of several name it. The root logger stays as it was. Calling this
    again moves the log to the new stream.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_PlainFormatter(worker) if stream.isatty() else _JsonFormatter(worker))
    for name, level in (
        (LOGGER, logging.INFO),
        *((library, logging.WARNING) for library in _FOREIGN),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
    # A traceback for each malformed request would let any client fill the disk.
    handler.addFilter(_not_caused_by_client)


def _not_caused_by_client(record: logging.LogRecord) -> bool:
    if not record.exc_info or not record.name.startswith(_FOREIGN):
        return True
    error = record.exc_info[1]
    return not isinstance(error, _BAD_CLIENT) and type(error).__module__ != _BAD_BYTES


class _JsonFormatter(logging.Formatter):
    """One line per record, whatever the message contains."""

    def __init__(self, worker: int | None) -> None:
        super().__init__()
        self._worker = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._worker,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _PlainFormatter(logging.Formatter):
    """For a person at a terminal: the time of day, the level, the message."""

    def __init__(self, worker: int | None) -> None:
        whose = "" if worker is None else f"worker {worker}: "
        super().__init__(f"%(asctime)s %(levelname)-7s {whose}%(message)s", "%H:%M:%S")
