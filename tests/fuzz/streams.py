"""Random streams of HTTP/1, most of them nearly sound; everything follows from chance.

Parsers disagree about what is nearly right: two lengths, a line that ends otherwise, a size
with a blank behind it. So a stream is written by the grammar with a few choices that no
sender should make, and then now and then spoiled byte by byte.
"""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import TypeVar

from tests.fuzz.mutations import CONTROLS, FRAMING

T = TypeVar("T")

LAST = b"GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
"""A sound request that ends its connection: what ends in it needs no deadline."""


def in_pieces(chance: Random, data: bytes) -> list[bytes]:
    """*data* as it arrives: whole, in a few pieces, or (if short) by the byte."""
    if len(data) < 300 and chance.random() < 0.05:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 2, 4))))
    return [data[a:b] for a, b in pairwise((0, *cuts, len(data))) if a < b]


def _usually(chance: Random, usual: T, *others: T, rate: float = 0.05) -> T:
    return chance.choice(others) if chance.random() < rate else usual


def _spoiled(chance: Random, data: bytes) -> bytes:
    """With a byte or a line too many, too few, or otherwise."""
    at = chance.randrange(len(data) + 1)
    size = chance.choice((1, 1, 2, 5))
    lines = data.split(b"\r\n")
    line = chance.randrange(len(lines))
    end = chance.choice((b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\r\n\t", b"", b"\n\r"))
    upto, behind = lines[: line + 1], lines[line + 1 :]
    return chance.choice(
        (
            data[:at] + chance.choice(CONTROLS) + data[at:],
            data[:at] + data[at + size :],
            data[:at] + chance.randbytes(size) + data[at + size :],
            b"\r\n".join((*upto, *lines[line:])),
            b"\r\n".join((*upto, chance.choice(FRAMING), *behind)),
            b"\r\n".join(upto) + end + b"\r\n".join(behind),
            data[:at],
        )
    )


# What requests and responses have in common.

_BODIES = (
    b"",
    b"abc",
    b"0\r\n\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"\r\n",
    b"z" * 900,
)
_CODINGS = (
    "Chunked",
    "CHUNKED ",
    "chunked, identity",
    "identity",
    "identity, chunked",
    "gzip, chunked",
    "chunked, chunked",
    "chunked,",
    ",chunked",
    "xchunked",
    "chunked;q=1",
    '"chunked"',
    "\x0bchunked",
    "chunked\x00",
    "",
)
_EXTENSIONS = (
    (b"", b";x", b";x=y", b';x="y;z"', b";x=y;z"),
    (b" ", b"\t", b" ;x", b"; x = y", b';x="\n"', b";\n", b";x\ny", b";x\ry", b";\x00", b"x", b"h"),
)
_TRAILERS = (
    (b"", b"", b"X-Trailer: t\r\n", b"X-A: 1\r\nX-B: 2\r\n"),
    (
        b"Content-Length: 7\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Host: b.example\r\n",
        b"X-A: 1\r\n folded\r\n",
        b"no colon\r\n",
        b"X-A : 1\r\n",
        b": nameless\r\n",
        b"X-A: 1\n",
        b"X-A: \x00\r\n",
    ),
)
_ENDS = (b"\r\n\r\n", b"\n", b"\r", b"\n\r\n", b"\r\r\n", b"", b"\r\n ")


def _length(chance: Random, size: int) -> str:
    return _usually(
        chance,
        f"{size}",
        f"{size + 1}",
        f"{max(size - 1, 0)}",
        f"0{size}",
        f"+{size}",
        f"-{size}",
        f" {size} ",
        f"{size}, {size}",
        f"{size},{size + 1}",
        f"{size}.0",
        f"0x{size:x}",
        f"{size}_0",
        f"{size} 0",
        "\u0663".encode().decode("latin-1"),
        "9" * 19,
        "18446744073709551616",
        "",
        rate=0.06,
    )


def _chunked(chance: Random) -> bytes:
    body = b""
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        data = chance.choice(_BODIES) or b"d"
        size = len(data)
        spelled = _usually(
            chance,
            b"%x" % size,
            b"%X" % size,
            b"000%x" % size,
            b"0x%x" % size,
            b"+%x" % size,
            b"-%x" % size,
            b" %x" % size,
            b"%x" % (size + 1),
            b"%x" % (size - 1),
            b"1%016x" % size,
            b"%x_" % size,
            b"",
            rate=0.04,
        )
        extension = _extension(chance)
        end = _usually(chance, b"\r\n", *_ENDS, rate=0.02)
        behind = _usually(chance, b"\r\n", *_ENDS, rate=0.02)
        body += spelled + extension + end + data + behind
    last = _usually(chance, b"0", b"000", b"0x0", b"-0", b"", b"00000000000000000", rate=0.05)
    trailer = chance.choice(_TRAILERS[chance.random() < 0.06])
    return body + last + _extension(chance) + b"\r\n" + trailer + _usually(chance, b"\r\n", *_ENDS)


def _extension(chance: Random) -> bytes:
    if chance.random() < 0.8:
        return b""
    return chance.choice(_EXTENSIONS[chance.random() < 0.25])


_CODING, _LENGTH = "Transfer-Encoding", "Content-Length"


def _framed(chance: Random, lines: list[str], kinds: Sequence[str]) -> bytes:
    """Add the lines that say how long the body is, and give the body."""
    kind = chance.choice(kinds)
    if kind == "chunked":
        name = _usually(
            chance,
            "Transfer-Encoding",
            "transfer-encoding",
            "Transfer-Encoding ",
            "Transfer_Encoding",
        )
        lines.append(f"{name}: {_usually(chance, 'chunked', *_CODINGS, rate=0.06)}")
        if chance.random() < 0.04:
            lines.append(
                chance.choice(("Transfer-Encoding: chunked", "Transfer-Encoding: identity"))
            )
        if chance.random() < 0.04:
            lines.insert(
                chance.randrange(1, len(lines) + 1), f"Content-Length: {chance.randrange(9)}"
            )
        return _chunked(chance)
    body = chance.choice(_BODIES)
    if kind == "length":
        name = _usually(
            chance, "Content-Length", "content-length", "Content-Length ", " Content-Length"
        )
        lines.append(f"{name}: {_length(chance, len(body))}")
        if chance.random() < 0.04:
            lines.append(f"Content-Length: {_length(chance, len(body))}")
    return body if kind in ("length", "until the end") else b""


def _written(chance: Random, lines: Sequence[str], body: bytes) -> bytes:
    """The lines as bytes, most with the right end."""
    ends = [
        _usually(chance, b"\r\n", b"\n", b"\r", b"\r\n\t", b"\r\r\n", rate=0.004) for _ in lines
    ]
    head = b"".join(line.encode("latin-1") + end for line, end in zip(lines, ends, strict=True))
    return head + b"\r\n" + body


# Requests.

_METHODS = ("GET", "GET", "GET", "POST", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH")
_ODD_METHODS = ("get", "M-SEARCH", "PRI", "BREW", "QUERY", "CONNECT", "TRACE", "G@T", "", "GET\t")
_TARGETS = ("/", "/a", "/a/b?c=d&e", "/%41%2f", "/a//b;c", "http://a.example/abs?x", "/../x")
_ODD_TARGETS = (
    *(
        "*",
        "/a#b",
        "/\xe9",
        "//a.example/x",
        "/a\\b",
        "/?",
        '/"<>',
        "/{x}|^`",
        "a",
        "?x",
        "/a b",
        "",
    ),
    *("a.example:80", "http://b.example", "http://u@a.example/", "https://a.example:99/"),
)
_VERSIONS = ("HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "HTTP/1.10", "HTTP/1", "")
_REQUEST_FIELDS = (
    *("X-Plain: value", "Accept: a, b", "X-Empty:", "X-Blanks:  \t v\t ", "x-many: 1", "X-Many: 2"),
    *("Authorization: Basic eA==", "Cookie: a=b; c=d", "Content-Encoding: gzip", "User-Agent: u"),
    *("Via: 1.1 other", "X-Forwarded-For: 10.0.0.1", "Connection: keep-alive", "TE: trailers"),
)
_ODD_REQUEST_FIELDS = (
    *("Expect: 100-continue", "Expect: 200-ok", "Connection: close", "Connection: x-plain"),
    *(
        "Connection: close, x-many",
        "Connection: Content-Length",
        "Connection: upgrade",
        "Upgrade: h2c",
    ),
    *("Upgrade: websocket", "Keep-Alive: timeout=1", "Proxy-Connection: close"),
    *(
        "X-Latin: \xe9",
        "X Y: z",
        "X-Space : z",
        " X-Folded: z",
        "\tz",
        "X-Nul: a\x00b",
        "X-Cr: a\rb",
    ),
    *(
        "X-Del: \x7f",
        "X-Tab: a\tb",
        ": z",
        "no colon",
        "X-Ctl: \x01",
        "Host: b.example",
        "Content_Length: 3",
    ),
    *("X(Y): z", 'X"Y": z', "X\xe9: z", "Transfer-Encoding\x00: chunked", "X-Long: " + "v" * 300),
)


def _request(chance: Random) -> bytes:
    blank = _usually(chance, " ", "  ", "\t", "", rate=0.01)
    method = _usually(chance, chance.choice(_METHODS), *_ODD_METHODS, rate=0.04)
    target = _usually(chance, chance.choice(_TARGETS), *_ODD_TARGETS, rate=0.08)
    version = _usually(chance, "HTTP/1.1", "HTTP/1.0", rate=0.1)
    version = _usually(chance, version, *_VERSIONS, rate=0.02)
    lines = [f"{method}{blank}{target} {version}", "Host: a.example"]
    lines += [
        _usually(chance, chance.choice(_REQUEST_FIELDS), *_ODD_REQUEST_FIELDS, rate=0.06)
        for _ in range(chance.choice((0, 1, 1, 2, 4)))
    ]
    if chance.random() < 0.03:
        lines[1:2] = chance.choice(
            (
                [],
                ["Host:"],
                ["Host: a b"],
                ["Host: a.example:x"],
                ["Host: a.example, b"],
                ["Host: [::1]"],
                ["host: a.example "],
            )
        )
    body = _framed(chance, lines, ("none", "none", "length", "chunked"))
    before = _usually(chance, b"", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b" ", rate=0.04)
    return before + _written(chance, lines, body)


def random_requests(chance: Random) -> bytes:
    """What a client sends on one connection."""
    requests = [_request(chance) for _ in range(chance.choice((1, 1, 2, 3, 5)))]
    stream = b"".join(requests)
    for _ in range(chance.choice((0, 0, 0, 0, 1, 2))):
        stream = _spoiled(chance, stream)
    return stream + LAST if chance.random() < 0.9 else stream


# Responses.

_STATUSES = (*(200,) * 8, 201, 204, 204, 205, 206, 301, 304, 404, 500, 503, 599)
_ODD_STATUSES = ("600", "999", "100", "102", "101", "099", "20", "2000", "2OO", "0200", "-200", "")
_RESPONSE_FIELDS = (
    *(
        "X-Plain: value",
        "Server: s",
        "Set-Cookie: a=b",
        "Set-Cookie: c=d",
        "X-Empty:",
        "Vary: a, b",
    ),
    *(
        "Last-Modified: Mon, 16 Nov 2026 16:51:04 GMT",
        "Via: 1.0 other",
        "Connection: keep-alive",
        "ETag: x",
    ),
)
_ODD_RESPONSE_FIELDS = (
    *("Connection: close", "Connection: x-plain", "Keep-Alive: timeout=5", "Upgrade: websocket"),
    *(
        "Trailer: X-Trailer",
        "X-Latin: \xe9",
        "Connection: upgrade",
        "Connection: Transfer-Encoding",
    ),
    *(
        "X-Space : z",
        " X-Folded: z",
        "\tz",
        "X-Nul: a\x00b",
        "X-Cr: a\rb",
        "X-Del: \x7f",
        "X(Y): z",
    ),
    *("X-Tab: a\tb", ": z", "no colon", "X-Ctl: \x01", "Content_Length: 3", "X-Blanks:  \t v\t "),
    *("Holdfast-Attempts: 9", "X-Request-Id: forged", "X\xe9: z", "X-Long: " + "v" * 300),
)


def _response(chance: Random, method: str) -> bytes:
    version = _usually(chance, "HTTP/1.1", "HTTP/1.0", rate=0.12)
    version = _usually(
        chance, version, "HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1", "ICY", rate=0.02
    )
    status = chance.choice(_STATUSES)
    text = _usually(chance, f"{status}", *_ODD_STATUSES, rate=0.03)
    reason = _usually(
        chance, " Fine", " ", "", "  x", " \xe9", " a\tb", " \x01", " a\rb", rate=0.08
    )
    lines = [f"{version} {text}{reason}"]
    lines += [
        _usually(chance, chance.choice(_RESPONSE_FIELDS), *_ODD_RESPONSE_FIELDS, rate=0.06)
        for _ in range(chance.choice((0, 1, 1, 2, 4)))
    ]
    body = _framed(
        chance, lines, ("none", "length", "length", "chunked", "chunked", "until the end")
    )
    if (method == "HEAD" or status in (204, 205, 304)) and chance.random() < 0.85:
        body = b""
    return _written(chance, lines, body)


_INTERIM = (
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\nContent-Length: 3\r\n\r\n",
    b"HTTP/1.1 103 Hints\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.0 100 Continue\r\n\r\n",
    b"HTTP/1.1 199 X\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
)


def random_response(chance: Random, method: str) -> bytes:
    """What an upstream says to one request."""
    interim = b"".join(
        _usually(chance, chance.choice(_INTERIM[:2]), *_INTERIM[2:], rate=0.3)
        for _ in range(_usually(chance, 0, 1, 1, 2, 19, 21, rate=0.15))
    )
    stream = interim + _response(chance, method)
    if chance.random() < 0.06:
        stream += _usually(chance, _response(chance, method), b"\r\n", b"\n", b"x", rate=0.4)
    for _ in range(chance.choice((0, 0, 0, 0, 1, 2))):
        stream = _spoiled(chance, stream)
    return stream
