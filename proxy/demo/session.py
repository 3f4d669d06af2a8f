"""One run of the demo: start the upstream, the proxy too if asked, and end them together."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import yaml

from proxy.demo.serving import DemoFailed, require_free, serving, split, stop_event
from proxy.demo.upstream import make_app

READY_WITHIN = 15.0
STOP_WITHIN = 10.0

INVITATION = """
Holdfast listens on {proxy}, in front of a flaky upstream. Try, in another terminal:

  # fails twice, then answers: the caller sees one answer, and Holdfast-Attempts: 3
  curl -i '{proxy}/flaky?fail=2'

  # a POST that failed may have run, so it is not sent again; /bank/pay honours keys: there it is
  curl -i '{proxy}/pay' -d hello -H 'Idempotency-Key: 1'

  # what was decided after each attempt, and why
  curl -s {admin}/metrics | grep 'retry_verdicts.*[1-9].0$'

{proxy}/ lists what else the upstream can do; {file} holds the routes. Ctrl-C stops both.
"""


async def run(listen: str, seed: int, file: Path | None) -> None:
    """Serve until SIGINT or SIGTERM, or until the proxy ends by itself."""
    stop = stop_event()
    async with serving(listen, make_app(time.monotonic, seed)) as address:
        if file is None:
            print(f"The demo upstream listens on http://{address}/", flush=True)
            await stop.wait()
        else:
            await _serve_proxy(file, stop)


async def _serve_proxy(file: Path, stop: asyncio.Event) -> None:
    addresses = _addresses_in(file)
    for key, address in addresses.items():
        require_free(address, f"`{key}` in {file}")
    async with _proxy(file) as process:
        ended = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(stop.wait())
        ready = asyncio.create_task(_until_ready(addresses["admin"]))
        await asyncio.wait({ended, stopped, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            ready.result()
            urls = {"proxy": _url(addresses["listen"]), "admin": _url(addresses["admin"])}
            print(INVITATION.format(**urls, file=file), flush=True)
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        stopped.cancel()
        if ended.done():
            raise DemoFailed(f"the proxy ended by itself with status {ended.result()}")


@asynccontextmanager
async def _proxy(file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    # In a process group of its own: Ctrl-C reaches this process alone, which
    # then ends the proxy as an orchestrator would, by SIGTERM.
    command = (sys.executable, "-m", "proxy", "run", str(file))
    process = await asyncio.create_subprocess_exec(*command, process_group=0)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_WITHIN)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _until_ready(admin: str) -> None:
    """Return when the proxy says that it is ready."""
    try:
        async with asyncio.timeout(READY_WITHIN), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"{_url(admin)}/readyz") as response:
                        if response.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass  # not listening yet
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise DemoFailed(f"the proxy was not ready within {READY_WITHIN:g} s") from None


def _addresses_in(file: Path) -> dict[str, str]:
    """Read where the proxy is going to listen. Checking the file is left to the proxy."""
    try:
        content = yaml.safe_load(file.read_text())
        addresses = {key: content[key] for key in ("listen", "admin")}
        for address in addresses.values():
            split(address)
    except (OSError, KeyError, TypeError, AttributeError, ValueError, yaml.YAMLError) as error:
        message = f"{file} must be a readable file with `listen` and `admin`, each HOST:PORT"
        raise DemoFailed(message) from error
    return addresses


def _url(address: str) -> str:
    return f"http://{address}"
