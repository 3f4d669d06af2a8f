"""Value types of a route's match: paths, methods, hosts and protocols."""

import re

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.other_products import by_other_word
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import ValueType, string_schema

# RFC 3986 3.3: the characters of a path segment, besides %XX.
_SEGMENT = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*")
_DOT_SEGMENT = re.compile(r"(?:\.|%2[eE]){1,2}")
_METHOD = re.compile(r"[A-Z0-9!#$%&'*+.^_`|~-]{1,32}")
_HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")

KNOWN_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
"""The methods of HTTP that are forwarded; any other name may be one, too."""

_REGEX_SIGNS = re.compile(r"[\^|\\\[\]?]|\.[*+]|\)[*+?$]?$|\$$|\(.*\)")
_ALTERNATIVES = re.compile(
    r"\^?(?P<before>/[\w/.-]*)\((?:\?:)?(?P<words>[\w.-]+(?:\|[\w.-]+)+)\)\$?"
)
_RULE = re.compile(r"\b(Host|PathPrefix|Path)\([`'\"]([\w./*-]+)[`'\"]\)")
_LOCATION = re.compile(r"(?P<sign>=|\^~)\s+(?P<path>/[\w./-]*)")
_PREFIX_RULE = re.compile(r"Path(?:Prefix)?\([`'\"](?P<path>/[^`'\"]*)[`'\"]\)")


def check_segments(path: str) -> None:
    """Refuse segments that another server could read as another path."""
    for segment in path.split("/"):
        if not _SEGMENT.fullmatch(segment):
            raise InvalidValue(
                "the path has characters that must be escaped, write %20 for a space (say)"
            )
        if _DOT_SEGMENT.fullmatch(segment):
            raise InvalidValue('"." and ".." cannot stand in a path, write it without them')


class PathPattern(ValueType[str]):
    """A path in which ``*`` is one segment and a final ``/**`` the rest."""

    noun = "path"
    example = "/v1/**"
    expects = "a path: /v1/** (* is one segment, a final /** the rest)"
    is_hidden = True  # the path of a webhook is a secret
    schema = string_schema(r"^/")

    def read(self, scalar: Scalar) -> str:
        text = scalar.text
        rule = _PREFIX_RULE.fullmatch(text)
        if rule:
            raise InvalidValue(f"{scalar.shown} is no path, write {below(rule['path'])}")
        if _REGEX_SIGNS.search(text):
            raise InvalidValue(_instead_of_regex(text))
        if "{" in text:
            plain = re.sub(r"\{[^{}/]*\}", "*", text)
            raise InvalidValue(
                f"{scalar.shown} has a named segment, write {plain} (* is any segment)"
            )
        if not text.startswith("/"):
            raise InvalidValue(f'a path begins with "/", write /{text}')
        *segments, last = text.split("/")
        if "**" in segments:
            raise InvalidValue(f"** can only end a path, write * for one segment in {scalar.shown}")
        for segment in (*segments, last if last != "**" else ""):
            if "*" in segment and segment != "*":
                raise InvalidValue(
                    f'* stands for a whole segment, write * in place of "{segment}", or list the '
                    f"paths"
                )
        check_segments(text)
        return text


class PathPrefix(ValueType[str]):
    """A prefix of a path, made of whole segments."""

    noun = "path"
    example = "/v1"
    expects = "a path that ends without a slash: /v1"
    schema = string_schema(r"^/.*[^/]$")

    def read(self, scalar: Scalar) -> str:
        text = scalar.text
        if not text.startswith("/"):
            raise InvalidValue(f'a path begins with "/", write /{text}')
        if text == "/":
            raise InvalidValue("/ strips nothing, write /v1 (say) or remove it")
        if "*" in text:
            raise InvalidValue(
                f"{scalar.shown} cannot hold *, write {text.partition('/*')[0] or '/v1'}"
            )
        if text.endswith("/"):
            raise InvalidValue(f"{scalar.shown} ends in a slash, write {text.rstrip('/') or '/v1'}")
        check_segments(text)
        return text


class Method(ValueType[str]):
    """A request method."""

    noun = "method"
    example = "POST"
    expects = "a method in capitals: POST"
    schema = string_schema(r"^[A-Z0-9!#$%&'*+.^_`|~-]+$")

    def read(self, scalar: Scalar) -> str:
        text = scalar.text
        if text.upper() in {"CONNECT", "TRACE"}:
            raise InvalidValue(f"{text.upper()} is always answered with 405, remove it")
        if text == "*":
            raise InvalidValue("* is no method, remove methods to match every one")
        if not _METHOD.fullmatch(text):
            if _METHOD.fullmatch(text.upper()) and text.isascii():
                raise InvalidValue(f"methods are upper case, write {text.upper()}")
            raise InvalidValue(self.wrong_type(scalar))
        return text


class HostPattern(ValueType[str]):
    """A host name, or ``*.example.com`` for every name below one."""

    noun = "host name"
    example = "api.example.com"
    expects = "a host name without its port: api.example.com or *.example.com"
    schema = string_schema(r"^(\*\.)?[A-Za-z0-9_.:\[\]-]+$")

    def read(self, scalar: Scalar) -> str:
        host = scalar.text.lower().removesuffix(".")
        if host == "*":
            raise InvalidValue("* is no host, remove host to match every one")
        if "://" in host:
            raise InvalidValue(f"{scalar.shown} is a URL, write its host only")
        without_port = re.sub(r":[0-9]*$", "", host)
        if without_port != host and (without_port.endswith("]") or ":" not in without_port):
            raise InvalidValue(f"a host is matched without its port, write {without_port}")
        if "*" in host.removeprefix("*."):
            raise InvalidValue(
                f"* can only begin a host, as in *.example.com; {scalar.shown} cannot be"
            )
        if not _HOST.fullmatch(host):
            raise InvalidValue(self.wrong_type(scalar))
        return host


class Protocol(ValueType[str]):
    """A protocol that a connection may be switched to."""

    noun = "protocol"
    example = "websocket"
    expects = "websocket"
    words = ("websocket",)
    synonyms = by_other_word({"websocket": "ws wss websockets"})
    schema = string_schema(r"^[wW]eb[sS]ocket$")

    def read(self, scalar: Scalar) -> str:
        text = scalar.text.lower()
        if text.partition("/")[0] in {"h2c", "h2", "http", "tls"}:
            # A request inside such a tunnel would bypass every rule of this file.
            raise InvalidValue(f"{scalar.shown} would hide requests from the proxy, remove it")
        if text != "websocket":
            raise InvalidValue(f"{scalar.shown} cannot be tunnelled, write {self.example}")
        return text


def instead_of_rule(text: str) -> str:
    """Return the match to write for a rule of Traefik or a location of nginx; or nothing."""
    location = _LOCATION.fullmatch(text)
    if location:
        path = location["path"]
        return path if location["sign"] == "=" else below(path)
    parts = dict(_RULE.findall(text))
    if "Host" not in parts:
        return ""
    path = below(parts["PathPrefix"]) if "PathPrefix" in parts else parts.get("Path")
    return f"{{host: {parts['Host']}, path: {path}}}" if path else f"{{host: {parts['Host']}}}"


def below(path: str) -> str:
    """Return the pattern for *path* and everything below it."""
    return f"{path.rstrip('/')}/**"


def _instead_of_regex(text: str) -> str:
    found = _ALTERNATIVES.fullmatch(text)
    if found is None:
        return (
            "regular expressions are not supported, write a path such as /v1/** (* is one segment, "
            "a final /** the rest)"
        )
    paths = [below(found["before"] + word) for word in found["words"].split("|")]
    return (
        "regular expressions are not supported, write one route for each path: "
        f"{', '.join(paths[:-1])} and {paths[-1]}"
    )
