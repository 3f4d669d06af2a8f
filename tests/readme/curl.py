"""As much of curl as the pages use, so that their examples run where there is no curl."""

import argparse
import http.client
from pathlib import Path
from urllib.parse import urlsplit

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
options = parser.parse_args()

connection = http.client.HTTPConnection(options.url.netloc, timeout=10)
connection.request(
    options.X or ("GET" if options.d is None else "POST"),
    options.url._replace(scheme="", netloc="").geturl() or "/",
    options.d,
    dict(field.split(": ", 1) for field in options.H),
)
response = connection.getresponse()
if options.i:
    head = [f"HTTP/1.1 {response.status} {response.reason}"]
    head += [f"{name}: {value}" for name, value in response.getheaders()]
    print("\r\n".join(head), end="\r\n\r\n")  # noqa: T201 - that is what it is for
body = response.read()
if options.o is None:
    print(body.decode(), end="")  # noqa: T201 - as curl does
else:
    Path(options.o).write_bytes(body)
shown = options.w.replace("%{http_code}", str(response.status)).replace("\\n", "\n")
print(shown, end="")  # noqa: T201 - as curl does
connection.close()
