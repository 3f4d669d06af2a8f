"""As much of curl as README.md uses, so that its examples run where there is no curl."""

import argparse
import http.client
from urllib.parse import urlsplit

parser = argparse.ArgumentParser(prog="curl")
parser.add_argument("-i", action="store_true", help="show the head too")
parser.add_argument("-s", action="store_true", help="silent, as this one always is")
parser.add_argument("-X", metavar="METHOD")
parser.add_argument("-d", metavar="BODY")
parser.add_argument("-H", metavar="FIELD", action="append", default=[])
parser.add_argument("url", type=urlsplit)
options = parser.parse_args()

connection = http.client.HTTPConnection(options.url.netloc, timeout=10)
connection.request(
    options.X or ("GET" if options.d is None else "POST"),
    options.url._replace(scheme="", netloc="").geturl(),
    options.d,
    dict(field.split(": ", 1) for field in options.H),
)
response = connection.getresponse()
if options.i:
    head = [f"HTTP/1.1 {response.status} {response.reason}"]
    head += [f"{name}: {value}" for name, value in response.getheaders()]
    print("\r\n".join(head), end="\r\n\r\n")  # noqa: T201 - that is what it is for
print(response.read().decode(), end="")  # noqa: T201 - as curl does
connection.close()
