"""What an editor says of a configuration file, asked of the server that editors use."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from proxy.config import ConfigError, Loaded
from proxy.config.schema import FILE, Section
from proxy.config.schema.listen import LIMITS
from proxy.config.schema.retry import RETRY
from proxy.config.schema.route import ROUTE
from proxy.config.schema.store import STORE
from proxy.config.schema.throttle import THROTTLE
from proxy.config.schema.upstream import UPSTREAM
from tests.support.language_server import LanguageServer, Problem, language_server

CONFIG = Path(__file__).parent.parent.parent.parent / "config"
MODELINE = "# yaml-language-server: $schema=./schema.json\n"


class Mistake(NamedTuple):
    text: str
    """The line of the file in which it is; those before it are good."""
    at: str
    """The part of the line that is underlined."""
    message: str


TIME = "Write a number with its unit (ms, s, m, h or d): 30s"
SIZE = "Write a number with its unit (B, KiB, MiB, GiB or TiB): 64KiB"
RATE = "a number of calls in a time: 20/s, 600/m or 10/500ms"
STATUS = (
    "a status from 400 to 599, 4xx, 5xx, 403+hint (say), or one of connect, refused, reset, "
    "timeout, protocol, default"
)


def any_of(section: Section, *required: str) -> str:
    """The keys of *section* but the required ones, which grow in number with the product."""
    return f"any of {', '.join(name for name in section.keys if name not in required)}"


RETRY_KEYS = any_of(RETRY)
ROUTE_KEYS = f"match and upstream and, if needed, {any_of(ROUTE, 'match', 'upstream')}"

MISTAKES = [
    Mistake("defaults: {timeout: 10sec}", "10sec", f"{TIME}, or none for no limit."),
    Mistake("defaults: {timeout: 10}", "10", f"{TIME}, or none for no limit."),
    Mistake("drain_timeout: 2w", "2w", f"{TIME}."),
    Mistake("defaults: {max_body: 10MB}", "10MB", f"{SIZE}, or none for no limit."),
    Mistake(
        "limits: {body_rate: 500}",
        "500",
        "Write bytes per second with their unit: 500B/s or 1KiB/s, or none for no limit.",
    ),
    Mistake(
        "defaults: {throttle: {rate: 20}}",
        "20",
        f"Write {RATE}; or a list of them; or none for no limit.",
    ),
    Mistake("defaults: {throttle: {rate: [20rps]}}", "20rps", f"Write {RATE}."),
    Mistake(
        "defaults: {throttle: 20}",
        "20",
        f"Write true or false; or {RATE}; or a mapping with {any_of(THROTTLE)}.",
    ),
    Mistake(
        "defaults: {throttle: {rate: 20/s, burst: 0}}",
        "0}",
        "Write a whole number from 1 to 1000000 or none for no burst.",
    ),
    Mistake(
        "defaults: {throttle: {rate: 20/s, key: ip}}",
        "ip}",
        "Write client_ip, header:NAME or query:NAME (no space behind the colon), or none.",
    ),
    Mistake(
        "defaults: {retry: often}",
        "often",
        f"Write true or false; or a whole number from 1 to 100; or a mapping with {RETRY_KEYS}.",
    ),
    Mistake(
        "defaults: {retry: {max_retries: 3}}",
        "max_retries",
        f"Unknown key. Write {RETRY_KEYS}.",
    ),
    Mistake("defaults: {retry: {attempts: many}}", "many", "Write a whole number from 1 to 100."),
    Mistake("defaults: {retry: {on: [5XX]}}", "5XX", f"Write {STATUS}."),
    Mistake("defaults: {retry: {on: [200]}}", "200", f"Write {STATUS}."),
    Mistake("defaults: {retry: {on: 503}}", "503", f"Write a list; each item is {STATUS}."),
    Mistake("defaults: {retry: {unsafe: true}}", "true", "Write auto, never or always."),
    Mistake(
        "defaults: {retry: {backoff: {jitter: 2}}}",
        "2",
        "Write full, equal, decorrelated, none, or a number from 0 to 1 (0.2: 20 % less or more).",
    ),
    Mistake(
        "defaults: {idempotency: {methods: [GET]}}", "GET", "Write POST, PATCH, PUT or DELETE."
    ),
    Mistake(
        "defaults: {idempotency: {scope: [client_ip]}}",
        "client_ip",
        "Write header: and a name, without a space: header:Authorization.",
    ),
    Mistake(
        "listen: 8080",
        "8080",
        "Write an address with its port (127.0.0.1:8080, [::1]:8080) or unix:/run/holdfast.sock; "
        "or a mapping with address and, if needed, tls; or a list of them.",
    ),
    Mistake(
        "admin: true",
        "true",
        "Write an address with its port (127.0.0.1:9901), or false for no admin listener.",
    ),
    Mistake("access_log: loud", "loud", "Write notable, all or none."),
    Mistake(
        "limits: 5",
        "5",
        f"Write a mapping with {any_of(LIMITS)}.",
    ),
    Mistake(
        "store: postgres://db",
        "postgres",
        "Write memory, sqlite:PATH or redis://127.0.0.1:6379 (rediss:// for TLS); or a mapping "
        f"with url and, if needed, {any_of(STORE, 'url')}.",
    ),
    Mistake(
        "upstreams: {api: api.example.com}",
        "api.example",
        "Write a URL of http or https, without credentials: http://127.0.0.1:9200; or a mapping "
        f"with urls and, if needed, {any_of(UPSTREAM, 'urls')}.",
    ),
    Mistake(
        "upstreams: {_api: 'http://api.example.com'}",
        "_api",
        "Write NAME: VALUE for each, where NAME is a name of ASCII letters, digits and signs (no "
        "quotes, no _ at the beginning).",
    ),
    Mistake(
        "routes: [{match: v1/charges, upstream: api}]",
        "v1",
        "Write a path, with or without a method: /v1/** or POST /v1/charges; or a mapping with any "
        "of path, methods, host, headers.",
    ),
    Mistake(
        "routes: [{match: {path: /v1, methods: [post]}, upstream: api}]",
        "post",
        "Write a method in capitals: POST.",
    ),
    Mistake(
        "routes: [{match: /v1, upstream: api, retries: 3}]",
        "retries",
        f"Unknown or missing key. Write {ROUTE_KEYS}.",
    ),
    Mistake("routes: [{match: /v1}]", "{", f"Unknown or missing key. Write {ROUTE_KEYS}."),
    Mistake(
        "tiemout: 3s",
        "tiemout",
        f"Unknown key. Write {any_of(FILE)}.",
    ),
]

SCENE = """\
upstreams: {api: 'http://127.0.0.1:9200'}
defaults:
  timeout: 10s
  throttle: 20/s
  retry:
    unsafe: never
routes:
  - match: /v1/**
    upstream: api
"""


@pytest.fixture(scope="session")
def editor() -> Iterator[LanguageServer]:
    with language_server(CONFIG) as server:
        yield server


def test_each_mistake_is_told_with_what_to_write(editor: LanguageServer) -> None:
    documents = [editor.open(f"{MODELINE}{mistake.text}\n") for mistake in MISTAKES]
    said = [editor.problems(document) for document in documents]
    assert said == [[Problem(2, text.index(at) + 1, what)] for text, at, what in MISTAKES]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.text)
def test_the_proxy_refuses_what_the_editor_does(
    loaded: Callable[..., Loaded], mistake: Mistake
) -> None:
    with pytest.raises(ConfigError):
        loaded(f"{mistake.text}\n")


def test_a_good_file_has_no_problems(editor: LanguageServer) -> None:
    texts = [file.read_text() for file in sorted(CONFIG.glob("*.yaml"))]
    texts = [text for text in texts if text.startswith(MODELINE)]
    documents = [editor.open(text) for text in [*texts, MODELINE + SCENE]]
    assert len(documents) > 2
    assert [editor.problems(document) for document in documents] == [[]] * len(documents)


def test_a_key_is_explained(editor: LanguageServer) -> None:
    document = editor.open(SCENE.replace("upstreams", MODELINE + "upstreams", 1))
    shown = {
        key: editor.hover(document, line, column).partition("\n\nSource: ")[0]
        for key, line, column in (
            ("timeout", 4, 3),
            ("throttle", 5, 3),
            ("unsafe", 7, 5),
            ("match", 9, 5),
        )
    }
    meaning, what_to_write, default, example = shown["timeout"].split("\n\n", 4)[1:]
    assert meaning.startswith("For the whole exchange up to the response's head")
    assert what_to_write == f"{TIME.replace('30s', '`30s`')}, or none for no limit."
    assert default == "Default: `30s`."
    assert example == "Example:\n\n```yaml\nnone\n```"
    assert "or a number of calls in a time: `20/s`, `600/m` or `10/500ms`" in shown["throttle"]
    assert "Example:\n\n```yaml\n20/s\n```\n" in shown["throttle"]
    assert shown["unsafe"].startswith("#### unsafe\n\n")
    assert "Allowed Values:\n\n* `never`\n* `auto`\n* `always`" in shown["unsafe"]
    assert "`/v1/**` or POST `/v1/charges`" in shown["match"]
    assert "Required." in shown["match"]


def test_keys_and_values_are_offered(editor: LanguageServer) -> None:
    def offered(text: str) -> dict[str, str]:
        """What is offered at the sign ``|``."""
        before = (MODELINE + text).partition("|")[0]
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
        return editor.completion(editor.open(MODELINE + text.replace("|", "")), line, column)

    assert list(offered("defaults:\n  retry:\n    |\n")) == [
        "attempts",
        "on",
        "unsafe",
        "attempt_timeout",
        "backoff",
        "retry_after",
    ]
    assert offered("routes:\n  - |\n")["match"] == "match: "
    assert list(offered("defaults:\n  retry:\n    unsafe: |\n")) == ["auto", "never", "always"]
    assert list(offered("defaults:\n  retry: |\n")) == ["false", "true", "3", "5"]
    assert list(offered("defaults:\n  throttle:\n    rate: |\n")) == [
        "none",
        "20/s",
        "600/m",
        "10/500ms",
    ]
    assert list(offered("defaults:\n  retry:\n    on:\n      - |\n")) == [
        "connect",
        "refused",
        "reset",
        "timeout",
        "protocol",
        "default",
        "4xx",
        "5xx",
    ]


def test_no_message_is_a_regular_expression() -> None:
    assert len(MISTAKES) >= 20
    assert not [one for one in MISTAKES if re.search(r"[\\^$]|\(\?", one.message)]
