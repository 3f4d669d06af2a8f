"""A file of ``config/examples``, in front of a fake of the API that it is for.

The file runs as it stands, with a second one laid over it that leads to scripted
upstreams and makes delays short; nothing else of it is changed.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from textwrap import dedent

from proxy.core.clock import Clock
from tests.support import RunningProxy, running
from tests.support.proxies import ROOT

FOLDER = ROOT / "config" / "examples"


class Example:
    """One of the files, or several that are read one after the other."""

    def __init__(self, *files: str, folder: Path = FOLDER) -> None:
        self.paths = [folder / file for file in files]

    def running(
        self, overlay: str, *, clock: Clock | None = None, environ: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[RunningProxy]:
        """The proxy with these files and *overlay*."""
        return running(dedent(overlay), upon=self.paths, clock=clock, environ=environ)
