"""Parsing of a request and of outcomes from the command line, with usage errors for wrong ones."""

import re

import click

from proxy.explain.subject import ParsedRequest
from proxy.http.hop import DEFAULT_HOP, Hop
from proxy.http.hosts import BAD_HOST, host_name
from proxy.http.refusal import Refusal
from proxy.http.request_head import read_request_head
from proxy.http.target import ASTERISK, split_target
from proxy.policy.attempt import FailureKind
from proxy.simulation.scripted_peer import ScriptedOutcome

_FORMS = "/path or http://host/path"
_is_token = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_is_value = re.compile(r"[\t -~\x80-\U0010ffff]*").fullmatch
_another_field = re.compile(r",(?=[!#$%&'*+.^_`|~0-9A-Za-z-]+=)").split
_KINDS = [kind for kind in FailureKind if kind not in {FailureKind.UNKNOWN, FailureKind.CANCELLED}]
_NEVER_SERVED = ("CONNECT", "TRACE")
_OK = 200
_LENGTH = b"content-length"


def read_field(text: str) -> tuple[bytes, bytes]:
    """Parse a header field, ``Name: value``."""
    name, colon, value = text.partition(":")
    if not colon or not _is_token(name) or not _is_value(value):
        # Not quoted: the text may contain a secret.
        raise click.UsageError("a header field is NAME: VALUE, write -H 'X-Tenant: acme' (say)")
    if name.lower().encode() == _LENGTH and not value.strip().isdecimal():
        raise click.UsageError("a length is a number, write -H 'Content-Length: 1000' (say)")
    return name.encode(), value.strip().encode()


def read_request(
    method: str, url: str, fields: list[tuple[bytes, bytes]], hop: Hop = DEFAULT_HOP
) -> ParsedRequest:
    """Parse a request as *hop* gets it; raise a usage error with the refusal a client would get."""
    if not _is_token(method) or "/" in method:
        raise click.UsageError(f"{method!r} is no method, write GET /path (say)")
    if method != method.upper():
        raise click.UsageError(f"methods are case-sensitive, write {method.upper()}")
    if method in _NEVER_SERVED:
        raise click.UsageError(f"{method} is never served (405), write another method")
    head = read_request_head(tuple(fields), http_1_0=False, hop=hop)
    if isinstance(head, Refusal):
        raise _unserved(head)
    target = split_target(method, url)
    if isinstance(target, Refusal):
        if not re.match(r"/|https?://", url):
            raise click.UsageError(f"{url!r} is no URL, write {_FORMS}")
        raise _unserved(target)
    path, rest, authority = target
    host = host_name(head.host if authority is None else authority)
    if host is None:
        raise _unserved(BAD_HOST)
    if method == "OPTIONS" and (path == ASTERISK or head.max_forwards == 0):
        raise click.UsageError(f"Holdfast answers {method} {url} itself, write {_FORMS}")
    return ParsedRequest(method, host, path, rest, head)


def _unserved(refusal: Refusal) -> click.UsageError:
    return click.UsageError(f"such a request gets {refusal.status}: {refusal.detail}")


def read_outcome(text: str) -> ScriptedOutcome:
    """Parse an outcome: ``503``, ``429:retry-after=5,x-ratelimit-remaining=0``, ``timeout``."""
    word, colon, rest = text.partition(":")
    kind = next((kind for kind in _KINDS if kind.value == word), None)
    if kind is not None and not colon:
        return ScriptedOutcome(kind, _OK if kind is FailureKind.TRUNCATED else 0)
    if kind is not None or not re.fullmatch("[2-5][0-9]{2}", word):
        kinds = ", ".join(_KINDS[:-1])
        raise click.UsageError(
            f"{text!r} is no outcome, write a status from 200 to 599 (503, or "
            f"429:retry-after=5), {kinds} or {_KINDS[-1]}"
        )
    return ScriptedOutcome(None, int(word), tuple(_response_fields(text, rest) if colon else ()))


def _response_fields(text: str, rest: str) -> list[bytes]:
    fields = []
    for part in _another_field(rest):
        name, equals, value = part.partition("=")
        if not equals or not _is_token(name) or not _is_value(value):
            raise click.UsageError(
                f"{text!r} has no header field after the colon, write 429:retry-after=5 (say)"
            )
        fields.append(f"{name}: {value}".encode())
    return fields
