"""The YAML language server that editors use, and an editor that asks it.

::

    with language_server(folder) as editor:
        document = editor.open("# yaml-language-server: $schema=./schema.json\\nlisten: 8080\\n")
        assert editor.problems(document) == [Problem(2, 9, "Write …")]

A document is one of *folder*, to which the address in its first line is relative; nothing is
written to disk. The server waits for a moment after a document has been opened, in case its author
goes on: open several, then ask.
"""

import itertools
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.tools import tool

_PATIENCE = 30.0
"""Seconds after which a server that says nothing is stuck. Node starts slowly on a busy machine."""

# No catalogue of schemas from elsewhere: a document says which one it wants.
_SETTINGS = {
    "yaml": {
        "completion": True,
        "hover": True,
        "schemaStore": {"enable": False},
        "validate": True,
    }
}
_CAPABILITIES = {
    "textDocument": {
        "completion": {"completionItem": {"snippetSupport": True}},
        "hover": {"contentFormat": ["markdown"]},
    },
    "workspace": {"configuration": True},
}


class Problem(NamedTuple):
    """What an editor underlines; line and column from 1, as `holdfast check` counts."""

    line: int
    column: int
    message: str


class LanguageServer:
    """Talks to the server as an editor does."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._numbers = itertools.count(1)
        self._unread = b""
        self._problems: dict[str, list[Problem]] = {}

    def initialize(self) -> None:
        """Begin, and say what is wanted."""
        params = {"processId": os.getpid(), "rootUri": self._folder.as_uri()}
        self._ask("initialize", params | {"capabilities": _CAPABILITIES})
        self._tell("initialized", {})
        self._tell("workspace/didChangeConfiguration", {"settings": _SETTINGS})

    def open(self, text: str) -> str:
        """Open a document with *text*; returns its address."""
        uri = (self._folder / f"document-{next(self._numbers)}.yaml").as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._tell("textDocument/didOpen", {"textDocument": document})
        return uri

    def problems(self, document: str) -> list[Problem]:
        """What is wrong with the document."""
        while document not in self._problems:
            self._handle(self._read())
        return self._problems[document]

    def hover(self, document: str, line: int, column: int) -> str:
        """What is shown when the pointer rests at a place of the document."""
        return str(self._at("textDocument/hover", document, line, column)["contents"]["value"])

    def completion(self, document: str, line: int, column: int) -> dict[str, str]:
        """What can be inserted at a place of the document: each label, and the text."""
        found = self._at("textDocument/completion", document, line, column)
        return {item["label"]: item["insertText"] for item in found["items"]}

    def _at(self, method: str, document: str, line: int, column: int) -> Any:  # noqa: ANN401 - JSON
        position = {"line": line - 1, "character": column - 1}
        return self._ask(method, {"textDocument": {"uri": document}, "position": position})

    def _ask(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._read()
            if message.get("id") == number and "method" not in message:
                return message["result"]
            self._handle(message)

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def _handle(self, message: dict[str, Any]) -> None:
        """Keep what the server tells, and answer what it asks."""
        params = message.get("params", {})
        if message.get("method") == "textDocument/publishDiagnostics":
            self._problems[params["uri"]] = [_problem(one) for one in params["diagnostics"]]
        elif "id" in message:
            items = params.get("items") if message["method"] == "workspace/configuration" else None
            result = None if items is None else [_SETTINGS.get(item["section"]) for item in items]
            self._send({"id": message["id"], "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while True:
            head, blank, rest = self._unread.partition(b"\r\n\r\n")
            length = int(head.rpartition(b":")[2]) if blank else 0
            if blank and len(rest) >= length:
                self._unread = rest[length:]
                message: dict[str, Any] = json.loads(rest[:length])
                return message
            self._unread += self._receive(deadline)

    def _receive(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        readable, _, _ = select.select(
            [self._process.stdout], [], [], max(0.0, deadline - time.monotonic())
        )
        assert readable, "the language server says nothing"
        data = os.read(self._process.stdout.fileno(), 65536)
        assert data, "the language server has ended"
        return data


def _problem(diagnostic: dict[str, Any]) -> Problem:
    start = diagnostic["range"]["start"]
    return Problem(start["line"] + 1, start["character"] + 1, diagnostic["message"])


@contextmanager
def language_server(folder: Path) -> Iterator[LanguageServer]:
    """Start the server, for documents of *folder*."""
    with subprocess.Popen(
        [tool("yaml-language-server"), "--stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            server = LanguageServer(process, folder)
            server.initialize()
            yield server
        finally:
            process.kill()
