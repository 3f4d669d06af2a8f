"""As much of curl as the pages use, so that their examples run where there is no curl."""

import argparse
import http.client
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="curl")
    parser.add_argument("-i", action="store_true", help="show the head too")
    parser.add_argument("-s", action="store_true", help="silent, as this one always is")
    parser.add_argument("-S", action="store_true", help="errors are shown in any case")
    parser.add_argument("-N", action="store_true", help="unbuffered, as this one is")
    parser.add_argument("-X", metavar="METHOD")
    parser.add_argument("-d", metavar="BODY")
    parser.add_argument("-H", metavar="FIELD", action="append", default=[])
    parser.add_argument("-o", metavar="FILE", help="where the body goes")
    parser.add_argument("-w", metavar="FORMAT", default="", help="%%{http_code} alone")
    parser.add_argument("url", type=urlsplit)
    return parser


def curl(arguments: Sequence[str], folder: Path) -> str:
    """What curl prints when it is called with *arguments* in *folder*."""
    options = _parser().parse_args(arguments)
    connection = http.client.HTTPConnection(options.url.netloc, timeout=10)
    connection.request(
        options.X or ("GET" if options.d is None else "POST"),
        options.url._replace(scheme="", netloc="").geturl() or "/",
        options.d,
        dict(field.split(": ", 1) for field in options.H),
    )
    response = connection.getresponse()
    body, head = response.read(), ""
    if options.i:
        fields = [f"{name}: {value}" for name, value in response.getheaders()]
        start = f"HTTP/1.1 {response.status} {response.reason}"
        head = "\r\n".join((start, *fields, "", ""))
    if options.o is not None:
        (folder / options.o).write_bytes(body)
        body = b""
    connection.close()
    written = options.w.replace("%{http_code}", str(response.status)).replace("\\n", "\n")
    return f"{head}{body.decode()}{written}"


if __name__ == "__main__":
    sys.stdout.write(curl(sys.argv[1:], Path.cwd()))
