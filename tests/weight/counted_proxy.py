"""The proxy, with a count of what each request takes: ``counted_proxy FILE run -c …``.

Calls (of Python functions and of C functions by these) and bytes of memory at the height, each
between the end of one request and that of the next. Written to FILE when the proxy ends.
"""

import atexit
import json
import logging
import sys
import tracemalloc
from pathlib import Path
from types import CodeType, FrameType

from proxy.cli import main
from proxy.observe.metrics.recorders import RouteRecorder

_END: CodeType = RouteRecorder.finished.__code__
_MOST = 10_000
"""Requests that there is room for."""


class Count:
    """Counts for :func:`sys.setprofile`. Makes no objects while it counts."""

    def __init__(self) -> None:
        self._calls = 0
        self._held = 0
        self._requests = 0
        self._calls_of = [0] * _MOST
        self._bytes_of = [0] * _MOST

    def begin(self, record: logging.LogRecord) -> bool:
        """Begin to count once the proxy says that it is ready: to start takes far more.

        A filter of its log that lets everything pass.
        """
        if record.getMessage().startswith("listening"):
            tracemalloc.start()
            sys.setprofile(self)
        return True

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event[-4:] == "call":  # and not a return
            self._calls += 1
            if frame.f_code is _END and event == "call":
                self._next_request()

    def _next_request(self) -> None:
        held, peak = tracemalloc.get_traced_memory()
        self._calls_of[self._requests] = self._calls
        self._bytes_of[self._requests] = peak - self._held
        self._requests += 1
        self._calls = 0
        self._held = held
        tracemalloc.reset_peak()

    def write(self, path: Path) -> None:
        """For whoever started this."""
        sys.setprofile(None)
        counted = zip(self._calls_of, self._bytes_of, strict=True)
        path.write_text(json.dumps(list(counted)[: self._requests]))


if __name__ == "__main__":
    count = Count()
    atexit.register(count.write, Path(sys.argv.pop(1)))
    logging.getLogger("holdfast").addFilter(count.begin)
    main()
