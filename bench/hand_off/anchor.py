"""The anchor: an aiohttp handler and a huey worker, as many write it; run as a module.

``serve PORT FILE`` accepts, ``work FILE URL`` delivers.
"""

import http.client
import sys
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

Stored = tuple[str, str, list[tuple[str, str]], bytes]


def queue(file: str) -> Any:  # noqa: ANN401 - huey has no types
    """The queue in *file*: what is put in is on disk."""
    return import_module("huey").SqliteHuey("bench", filename=file, fsync=True, results=False)


def task_of(huey: Any, url: str) -> Any:  # noqa: ANN401 - as above
    """The task that sends a request to *url*."""
    address = urlsplit(url)

    def send(method: str, path: str, fields: list[tuple[str, str]], body: bytes) -> None:
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        connection.request(method, path, body=body, headers=dict(fields))
        connection.getresponse().read()
        connection.close()

    return huey.task(name="send", retries=5, retry_delay=2)(send)


def serve(port: int, file: str) -> None:
    """Accept requests: 202 once they are on disk."""
    send = task_of(queue(file), "http://127.0.0.1:9")

    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        send(request.method, request.path_qs, list(request.headers.items()), body)
        return web.Response(status=202)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)


def work(file: str, url: str) -> None:
    """Deliver what is in the queue."""
    huey = queue(file)
    task_of(huey, url)
    huey.create_consumer(workers=1, worker_type="thread", periodic=False, initial_delay=0.01).run()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        work(sys.argv[2], sys.argv[3])
