"""Value types of addresses: listeners, trusted peers, URLs of upstreams."""

import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from types import MappingProxyType
from typing import ClassVar

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.nearest import meant
from proxy.config.diagnostics.other_products import OFF
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import ValueType, either, string_schema
from proxy.config.values.paths import check_segments
from proxy.policy.settings import Listen, Origin

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*\.?")

_LONGEST_SOCKET_PATH = 104
"""Bytes that fit into the address of a unix socket on the system with the lowest limit."""

# RFC 3927, RFC 4291 2.5.6, and the address at which AWS serves credentials over IPv6.
_LINK_LOCAL = (
    ip_network("169.254.0.0/16"),
    ip_network("fe80::/10"),
    ip_network("fd00:ec2::254/128"),
)


@dataclass(frozen=True, slots=True)
class ListenAddress(ValueType[Listen]):
    """An address to listen on: ``host:port``, ``[::1]:port`` or ``unix:/path``."""

    suggested_port: int = 8080
    """The port in suggestions."""
    noun = "address to listen on"
    example = "127.0.0.1:8080"
    expects = f"an address with its port ({example}, [::1]:8080) or unix:/run/holdfast.sock"
    schema = string_schema(r"^(unix:.+|.+:[0-9]{1,5})$")

    def read(self, scalar: Scalar) -> Listen:
        text = scalar.text
        if text.startswith("unix:"):
            return Listen(path=_socket_path(text.removeprefix("unix:")))
        if "://" in text:
            raise InvalidValue(
                f"{scalar.shown} is a URL, write 127.0.0.1:{self.suggested_port} (say)"
            )
        alone = re.fullmatch(r":?([0-9]{1,5})", text)
        if alone:
            raise InvalidValue(
                f"{scalar.shown} has no address, write 127.0.0.1:{alone[1]}, or "
                f"0.0.0.0:{alone[1]} to be reachable from outside"
            )
        if _is_ipv6(text):
            raise InvalidValue(f"{scalar.shown} has no port, write [{text}]:{self.suggested_port}")
        scheme, _, path = text.partition(":")
        if "/" in path and meant(scheme, ("unix",)):
            raise InvalidValue(f"{scalar.shown} is no address to listen on, write unix:{path}")
        if text.startswith(("/", "./")):
            raise InvalidValue(f"{scalar.shown} is a path, write unix:{text}")
        host, colon, port = text.rpartition(":")
        if not colon:
            raise InvalidValue(f"{scalar.shown} has no port, write {text}:{self.suggested_port}")
        return Listen(host=self._host(host, port), port=_port(port))

    def _host(self, host: str, port: str) -> str:
        if host == "*":
            raise InvalidValue(
                f"* is no address, write 0.0.0.0:{port} to be reachable from outside"
            )
        if _is_ipv6(host):
            raise InvalidValue(f"an IPv6 address needs brackets, write [{host}]:{port}")
        if host.startswith("[") and host.endswith("]") and _is_ipv6(host[1:-1]):
            return host[1:-1]
        if not HOST_NAME.fullmatch(host) or _is_broken_ipv4(host):
            raise InvalidValue(f'"{host}" is no address, write 127.0.0.1:{port} (say)')
        return host


class AdminAddress(ValueType[Listen | None]):
    """An address, or ``false`` for no admin listener."""

    none = True
    noun = "address to listen on"
    example = "127.0.0.1:9901"
    expects = f"an address with its port ({example}), or false for no admin listener"
    words = ("false",)
    synonyms = MappingProxyType(dict.fromkeys(OFF, "false"))
    examples = (example, False)
    schema = either({"enum": [False]}, "an address", ListenAddress.schema)

    def read(self, scalar: Scalar) -> Listen | None:
        if scalar.type == "bool":
            if scalar.text[0] in "fF":
                return None
            raise InvalidValue(f"{scalar.text} is no address, write {self.example} or false")
        return ListenAddress(9901).read(scalar)

    def write(self, value: Listen | None) -> object:
        return False if value is None else str(value)


class TrustedPeer(ValueType[IPv4Network | IPv6Network | str]):
    """A network, a single address, or ``unix`` for peers on unix sockets."""

    noun = "network"
    example = "10.0.0.0/8"
    expects = f"a network ({example}), an address (10.1.2.3), or unix"
    words = ("unix",)
    schema = string_schema(r"^(unix|[0-9a-fA-F.:]+(/[0-9]{1,3})?)$")

    def read(self, scalar: Scalar) -> IPv4Network | IPv6Network | str:
        text = scalar.text
        if text == "unix":
            return text
        with suppress(ValueError):
            return ip_network(text)
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            raise InvalidValue(
                f"{scalar.shown} is no network, write {self.example} (say), an address, or unix"
            ) from None
        raise InvalidValue(f"{scalar.shown} is an address within a network, write {network}")


class UpstreamUrl(ValueType[Origin]):
    """The URL of an upstream: ``http://host:port/base``.

    Messages do not quote the URL where it could contain a credential.
    """

    noun = "URL of an upstream"
    example = "http://127.0.0.1:9200"
    expects = f"a URL of http or https, without credentials: {example}"
    schema = string_schema(r"^[hH][tT][tT][pP][sS]?://[^@?#\s]+$")

    def read(self, scalar: Scalar) -> Origin:
        text = scalar.text
        if "@" in text:  # even in a path: the slash before it may belong to a password
            raise InvalidValue(
                "a URL must not hold credentials, write headers: {request: {set: {Authorization: "
                '"${…}"}}} in the route, and %40 for an @ in its path'
            )
        if "?" in text or "#" in text:
            raise InvalidValue("a URL here ends with its path, remove the ? or # and what follows")
        if re.search(r"[\s\x00-\x1f\x7f\\]", text):
            raise InvalidValue(
                "a URL cannot hold spaces, backslashes or control characters, remove them"
            )
        scheme, separator, rest = text.partition("://")
        if not separator:
            if text.startswith("unix:"):
                raise InvalidValue(
                    f"an upstream on a unix socket is not supported, write {self.example} (say)"
                )
            if not re.match(r"[A-Za-z0-9\[]", text):
                raise InvalidValue(f"{scalar.shown} is no URL, write {self.example} (say)")
            raise InvalidValue(
                f"{scalar.shown} has no scheme, write http://{text} or https://{text}"
            )
        if scheme.lower() not in {"http", "https"}:
            raise InvalidValue(f'"{scheme}" is no scheme of an upstream, write http:// or https://')
        authority, slash, path = rest.partition("/")
        host, port = host_and_port(
            authority, 443 if scheme.lower() == "https" else 80, self.example
        )
        base_path = (slash + path).rstrip("/")
        check_segments(base_path)
        return Origin(scheme.lower(), host, port, base_path)

    def masked(self, value: Origin) -> str:
        # Some services put a token into the path of a webhook's URL.
        bare = str(Origin(value.scheme, value.host, value.port))
        return f"{bare}/***" if value.base_path else bare


class ServerName(ValueType[str]):
    """The name that an upstream's certificate must show."""

    noun = "host name"
    example = "api.example.com"
    expects = f"a host name: {example}"
    schema: ClassVar = {"type": "string", "minLength": 1}

    def read(self, scalar: Scalar) -> str:
        if not HOST_NAME.fullmatch(scalar.text) and not _is_ipv6(scalar.text):
            raise InvalidValue(self.wrong_type(scalar))
        return scalar.text.rstrip(".").lower()


def is_loopback(listen: Listen) -> bool:
    """Return whether only this machine can reach *listen*."""
    if listen.path or listen.host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(listen.host).is_loopback
    except ValueError:
        return False


def _socket_path(path: str) -> str:
    if not path or "\0" in path:
        raise InvalidValue("a unix socket needs a path, write unix:/run/holdfast.sock (say)")
    if len(path.encode(errors="surrogateescape")) > _LONGEST_SOCKET_PATH:
        raise InvalidValue(
            f"a unix socket's path has at most {_LONGEST_SOCKET_PATH} bytes, write a shorter one"
        )
    return path


def _port(text: str, least: int = 0) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not least <= int(text) <= 65535:
        raise InvalidValue(f'"{text}" is no port, write a number from {least} to 65535')
    return int(text)


def host_and_port(text: str, default_port: int, example: str) -> tuple[str, int]:
    """Read the authority of a URL (between ``://`` and the path); *example* is a good URL."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or not _is_ipv6(host):
            raise InvalidValue(f'"{text}" is no host, write [::1]:8080 (say) for an IPv6 address')
        _refuse_link_local(IPv6Address(host))
        host, colon, port = str(IPv6Address(host)), rest[:1], rest[1:]
        if rest and colon != ":":
            raise InvalidValue(f'"{text}" is no host, write [{host}]:8080 (say)')
    else:
        if _is_ipv6(text):
            raise InvalidValue(f"an IPv6 address needs brackets, write [{text}]")
        host, colon, port = text.partition(":")
        host = host.lower()
        if not host:
            raise InvalidValue(f"the URL names no host, write {example} (say)")
        if not HOST_NAME.fullmatch(host) or _is_broken_ipv4(host):
            raise InvalidValue(f'"{host}" is no host name, write {_ascii_name(host)}')
        with suppress(ValueError):
            _refuse_link_local(IPv4Address(host))
    return host, _port(port, 1) if colon else default_port


def _refuse_link_local(address: IPv4Address | IPv6Address) -> None:
    """Refuse link-local addresses: a typing error or an attacker could expose credentials there."""
    real = getattr(address, "ipv4_mapped", None) or address
    if any(real in network for network in _LINK_LOCAL):
        raise InvalidValue(
            f"{real} is link-local, where clouds serve a machine's credentials, write a host "
            f"name that stands for it if it is really meant"
        )


def _is_ipv6(text: str) -> bool:
    try:
        # A zone (%eth0) has a meaning only for link-local addresses.
        return "%" not in text and ip_address(text).version == 6
    except ValueError:
        return False


def _is_broken_ipv4(host: str) -> bool:
    """Return whether a resolver may read *host* as another IPv4 address than it looks like.

    ``2130706433``, ``0x7f.1`` and ``127.1`` all mean 127.0.0.1 to some resolvers.
    """
    last = host.rstrip(".").rpartition(".")[2]
    if not re.fullmatch(r"[0-9]+|0[xX][0-9a-fA-F]*", last):
        return False
    try:
        return str(IPv4Address(host)) != host
    except ValueError:
        return True


def _ascii_name(host: str) -> str:
    """Return what to write for a host name with characters beyond ASCII."""
    if not host.isascii():
        with suppress(UnicodeError):
            return host.encode("idna").decode()
    return "api.example.com (say)"
