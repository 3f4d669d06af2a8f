"""Models, schema and reference file say the same."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy import HOME, __version__
from proxy.config import ConfigError, Loaded, load
from proxy.config.diagnostics.diagnostics import Diagnostics
from proxy.config.diagnostics.position import Source
from proxy.config.read.reader import Reader
from proxy.config.schema import FILE, Section, sections
from proxy.config.schema.json_schema import json_schema, markdown
from proxy.config.source.interpolation import Interpolation
from proxy.config.source.parse import parse_file
from tests.config.core_schema import read
from tests.support.json_schema import Draft202012Validator, ValidationError

CONFIG = Path(__file__).parents[3] / "config"
REFERENCE = (CONFIG / "holdfast.yaml").read_text()
SCHEMA = json_schema()
TOP_KEYS = ("listen", "admin", "drain_timeout", "drain_delay", "access_log")
UPSTREAM_KEYS = (
    "balance",
    "connect_timeout",
    "idle_connections",
    "max_connections",
    "keepalive",
    "host",
    "refused",
)
THROTTLE_KEYS = (
    "algorithm",
    "concurrency",
    "max_wait",
    "max_queue",
    "max_keys",
    "on_store_error",
)
STORE_KEYS = ("prefix", "timeout")
SECTIONS = {section.name: section for section in sections(FILE)}
KEYS = [(section, name) for section in SECTIONS.values() for name in section.keys]
ENVIRON = dict.fromkeys(("API_TOKEN", "HOLDFAST_ADMIN_TOKEN", "REDIS_PASSWORD"), "secret")
VALIDATOR = Draft202012Validator(SCHEMA)


def objects(schema: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """Every mapping that the schema describes, with its keys or with names that users choose."""
    if isinstance(schema, dict):
        if "properties" in schema or "patternProperties" in schema:
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def key_id(value: object) -> str:
    return value.name if isinstance(value, Section) else str(value)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("file", sorted(CONFIG.glob("*.yaml")), ids=lambda file: file.name)
def test_every_file_that_we_ship_is_good(file: Path) -> None:
    VALIDATOR.validate(read(file.read_text()))
    assert load([file], {}).warnings == ()


def test_the_schema_beside_the_examples_is_up_to_date() -> None:
    shipped = json.loads((CONFIG / "schema.json").read_text())
    assert shipped == SCHEMA, "run make generate"


def test_the_definitions_keep_their_names() -> None:
    # Another schema may refer to one of them: a class that is renamed must not rename it.
    assert sorted(SCHEMA["$defs"]) == [
        "BackoffKeys",
        "BreakerKeys",
        "BudgetKeys",
        "DeadLetterKeys",
        "DeliveriesKeys",
        "DeliveryBackoffKeys",
        "DeliveryRetryAfterKeys",
        "DeliveryRetryKeys",
        "FallbackKeys",
        "HandOffKeys",
        "HeaderEditKeys",
        "HeadersKeys",
        "HonoursKeyKeys",
        "IdempotencyKeys",
        "LetterHeaderKeys",
        "LimitKeys",
        "ListenOn",
        "ListenTls",
        "MatchKeys",
        "PauseKeys",
        "PolicyKeys",
        "RetryAfterKeys",
        "RetryKeys",
        "RouteKeys",
        "StoreKeys",
        "ThrottleKeys",
        "UpstreamKeys",
        "UpstreamTlsKeys",
    ]


def test_every_key_is_described_and_every_mapping_closed() -> None:
    for described in objects(SCHEMA):
        assert described["additionalProperties"] is False
        for key, value in described.get("properties", {}).items():
            assert value.get("description"), key


def test_no_words_of_the_library_are_left() -> None:
    assert '"null"' not in json.dumps(SCHEMA)


def parts(schema: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """Every schema in the schema, conditions apart: nobody sees what is wrong with these."""
    if isinstance(schema, list):
        for part in schema:
            yield from parts(part)
    elif isinstance(schema, dict):
        yield schema
        for name, part in schema.items():
            if name in {"properties", "patternProperties", "$defs"}:
                yield from parts([*part.values()])
            elif name in {"then", "else", "items", "anyOf"}:
                yield from parts(part)


def test_the_schema_has_an_address_of_its_version() -> None:
    assert SCHEMA["$id"] == f"{HOME}/raw/v{__version__}/config/schema.json"
    assert SCHEMA["title"] == "Holdfast"


def test_the_address_is_that_of_the_package() -> None:
    project = tomllib.loads((CONFIG.parent / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Homepage"] == HOME


def test_every_mapping_and_every_key_has_a_title() -> None:
    for section in SCHEMA["$defs"].values():
        assert section["title"]
    for described in objects(SCHEMA):
        for key, value in described.get("properties", {}).items():
            assert value["title"] == key


def test_every_value_that_is_wrong_has_a_message_that_says_what_to_write() -> None:
    checking = {"type", "enum", "const", "pattern", "additionalProperties"}
    for part in parts(SCHEMA):
        if checking & part.keys():
            assert re.search(r"(?:^|\. )Write [^\\^]+\.$", part["errorMessage"]), part


def test_every_key_is_explained_in_markdown() -> None:
    for described in objects(SCHEMA):
        for key, value in described.get("properties", {}).items():
            text, *others = value["markdownDescription"].split("\n\n")
            assert re.sub(r"[`\\]", "", text) == value["description"].replace("\\", ""), key
            assert others[0].startswith("Write ")
            if key in described.get("required", ()):
                assert others[1:] == ["Required."]
            else:
                assert others[1:] in ([], [f"Default: `{_flow(value.get('default'))}`."]), key


def _flow(default: object) -> str:
    """How one writes a default in one line of YAML."""
    if isinstance(default, list):
        return f"[{', '.join(map(str, default))}]"
    return json.dumps(default) if isinstance(default, bool) else str(default)


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("a final /** the rest (* is one)", "a final `/**` the rest (`*` is one)"),
        ("30s, 1.5KiB or 10MB/s; a 40th", "`30s`, `1.5KiB` or `10MB/s`; a 40th"),
        ("[] or [10/s, 5000/h]", "`[]` or `[10/s, 5000/h]`"),
        ("on_store_error decides.", "`on_store_error` decides."),
        ("header:NAME, without: a space", "`header:NAME`, without: a space"),
        ("2xx, 403+hint (say)", "`2xx`, `403+hint` (say)"),
        ("${TOKEN} # !", "`${TOKEN}` \\# \\!"),
    ],
)
def test_what_is_code_is_marked_as_such(text: str, marked: str) -> None:
    assert markdown(text) == marked


@pytest.mark.parametrize(("section", "name"), KEYS, ids=key_id)
def test_every_key_shows_a_good_value(folder: Path, section: Section, name: str) -> None:
    described = SCHEMA if section is FILE else SCHEMA["$defs"][section.name]
    value = described["properties"][name]
    examples = value.get("examples", [])
    assert examples or "default" in value or isinstance(section.keys[name].shape, Section)
    only_this = replace(section, keys={name: section.keys[name]})
    for example in examples:
        schema = {"$defs": SCHEMA["$defs"]} | value
        Draft202012Validator(schema).validate(example)
        (folder / "example.yaml").write_text(json.dumps({name: example}))
        diagnostics = Diagnostics()
        root = parse_file(Source("example.yaml", path=folder / "example.yaml"), diagnostics)
        assert root is not None
        Reader(diagnostics, Interpolation(ENVIRON, lambda _: None)).read_file(root, only_this)
        assert not diagnostics.report(()).diagnostics


def test_the_reference_has_every_key() -> None:
    keys = {key for described in objects(SCHEMA) for key in described.get("properties", {})}
    written = set(re.findall(r"([a-z_]+): ?", REFERENCE))
    assert keys <= written


def test_the_reference_shows_the_defaults() -> None:
    reference = read(REFERENCE)
    payments = reference["upstreams"]["payments"]
    retry = reference["policies"]["patient"]["retry"]
    throttle, store = reference["policies"]["polite"]["throttle"], reference["store"]
    once = reference["policies"]["once"]["idempotency"]
    for written, section in (
        (reference["limits"], "LimitKeys"),
        (reference["defaults"], "PolicyKeys"),
        ({key: payments[key] for key in UPSTREAM_KEYS}, "UpstreamKeys"),
        (payments["budget"], "BudgetKeys"),
        (payments["honours_key"], "HonoursKeyKeys"),
        (payments["breaker"], "BreakerKeys"),
        ({key: retry[key] for key in ("attempts", "on", "unsafe", "attempt_timeout")}, "RetryKeys"),
        (retry["backoff"], "BackoffKeys"),
        (retry["retry_after"], "RetryAfterKeys"),
        ({key: throttle[key] for key in THROTTLE_KEYS}, "ThrottleKeys"),
        (throttle["pause"], "PauseKeys"),
        (once, "IdempotencyKeys"),
        ({key: store[key] for key in STORE_KEYS}, "StoreKeys"),
        ({key: reference[key] for key in TOP_KEYS}, None),
    ):
        described = (SCHEMA if section is None else SCHEMA["$defs"][section])["properties"]
        assert written == {key: described[key]["default"] for key in written}
    # These would have no effect beside redis, and stand there as comments.
    described = SCHEMA["$defs"]["StoreKeys"]["properties"]
    for key in ("entries", "bytes"):
        assert f"# {key}: {described[key]['default']} " in REFERENCE


GOOD = """\
upstreams: {a: 'http://127.0.0.1:1', b: 'http://127.0.0.1:2'}
routes: [{match: /**, upstream: a}]
"""


@pytest.mark.parametrize(
    "text",
    [
        "drain_delay: 1m30s",
        "listen: [127.0.0.1:3, {address: 'unix:/run/a'}]",
        "admin: false",
        "admin_token: '${TOKEN}'",
        "limits: {connections: '${N}', keepalive: '${N}s'}",
        "policies: {a: {timeout: none, max_body: 1.5KiB}}",
        "upstreams: {a: '${URL}', 'b c': {urls: ['http://a.example']}}",
        "routes: [{match: {path: [/x], host: a.example, headers: {X-A: 1}}, upstream: a}]",
        "defaults: {retry: 5}",
        "defaults: {retry: true}",
        "defaults: {retry: false, fallback: false}",
        "defaults: {retry: {}}",
        "defaults: {retry: '${N}'}",
        "defaults: {retry: {attempts: '${N}', on: [default, '529', '${N}03', 4xx, 403+hint]}}",
        "defaults: {retry: {unsafe: never, attempt_timeout: 2s, retry_after: false}}",
        "defaults: {retry: {backoff: {strategy: linear, increment: 1s, jitter: 0.2}}}",
        "defaults: {retry: {backoff: {factor: 1.5, jitter: none}, retry_after: {max: 5s}}}",
        "defaults: {fallback: {status: 503, headers: {Content-Type: text/plain}, body: sorry}}",
        "defaults: {fallback: {upstream: b, on: [breaker_open, protocol]}, buffer: 0B}",
        "limits: {replay_memory: 1GiB}",
        "limits: {body_rate: 1.5KiB/s}",
        "limits: {body_rate: none}",
        "limits: {body_rate: '${N}B/s'}",
        "upstreams: {a: {urls: ['http://a.example'], honours_key: true, budget: false}}",
        "upstreams: {a: {urls: ['http://a.example'], honours_key: X-Key, budget: {ratio: 1}}}",
        "upstreams: {a: {urls: ['http://a.example'], breaker: {probes: 1}, refused: [429, 503]}}",
        "upstreams: {a: {urls: ['http://a.example'], breaker: true, budget: {}}}",
        "defaults: {throttle: 100/s}",
        "defaults: {throttle: '${N}/m'}",
        "defaults: {throttle: true}",
        "defaults: {throttle: false}",
        "defaults: {throttle: {}}",
        "defaults: {throttle: {rate: [10/s, 5000/h, 10/500ms, 7/1m30s], burst: 5}}",
        "defaults: {throttle: {rate: none, concurrency: none, max_wait: none, key: none}}",
        "defaults: {throttle: {rate: [], concurrency: '${N}', max_wait: 0s, max_queue: 0}}",
        "defaults: {throttle: {rate: 5/d, algorithm: window, pause: false}}",
        "defaults: {throttle: {key: header:X-Tenant, max_keys: 5, pause: {max: 5s}}}",
        "defaults: {throttle: {key: 'query:ids[]', pause: true, on_store_error: closed}}",
        "defaults: {throttle: {key: client_ip, concurrency: 1}}",
        "upstreams: {a: {urls: ['http://a.example'], throttle: 600/m}}",
        "upstreams: {a: {urls: ['http://a.example'], throttle: {rate: 1/s}}}",
        "defaults: {idempotency: true}",
        "defaults: {idempotency: false}",
        "defaults: {idempotency: {}}",
        "defaults: {idempotency: {header: X-Key, methods: [PUT, DELETE], required: true}}",
        "defaults: {idempotency: {methods: ['${M}'], required: '${B}', ttl: 3d, lease: '${N}s'}}",
        "defaults: {idempotency: {scope: [], scope_required: false, in_flight: reject}}",
        "defaults: {idempotency: {scope: header:X-Tenant, scope_required: true}}",
        "defaults: {idempotency: {scope: [header:Cookie, 'header:${M}'], mismatch_status: 409}}",
        "defaults: {idempotency: {keep: [2xx, 5xx, 409, '404', '${N}00'], on_ambiguous: hold}}",
        "defaults: {idempotency: {max_response: 64KiB, on_store_error: open}}",
        "store: memory",
        "store: {url: memory, entries: 5, bytes: 1MiB}",
        "store: {url: redis://redis.example, entries: 5}",
        "store: sqlite:keys.db",
        "store: sqlite:./keys.db",
        "store: sqlite:/keys.db",
        "store: {url: 'SQLite:${M}.db', timeout: 1s}",
        "store: redis://redis.example",
        "store: 'rediss://user:p%40ss@[::1]:6380/3'",
        "store: '${REDIS}'",
        "store: {url: '${REDIS}', username: a, password: '${TOKEN}', prefix: a, timeout: 1s}",
        "store: {url: rediss://redis.example, tls: {server_name: a.example, verify: false}}",
    ],
)
def test_editor_and_proxy_both_accept(loaded: Callable[..., Loaded], text: str) -> None:
    data = read(GOOD) | read(text)
    VALIDATOR.validate(data)
    environ = {"TOKEN": "t", "N": "5", "URL": "http://a.example", "REDIS": "redis://a"}
    loaded(json.dumps(data), environ | {"B": "true", "M": "POST"})


@pytest.mark.parametrize(
    "text",
    [
        "tiemout: 3s",
        "defaults: {timeout: 30}",
        "defaults: {timeout: 30sec}",
        "defaults: {max_body: 10MB}",
        "defaults: {match: /**}",
        "defaults: {headers: {Authorization: a}}",
        "defaults: {headers: {request: {set: {'A B': a}}}}",
        "defaults: {throttle: 100}",
        "defaults: {throttle: 100/sec}",
        "defaults: {throttle: none}",
        "defaults: {throttle: [10/s]}",
        "defaults: {throttle: {rate: 0/s}}",
        "defaults: {throttle: {rate: 1.5/s}}",
        "defaults: {throttle: {rate: [none]}}",
        "defaults: {throttle: {rate: 10/s, burst: 0}}",
        "defaults: {throttle: {algorithm: token_bucket}}",
        "defaults: {throttle: {concurrency: 0}}",
        "defaults: {throttle: {max_wait: 5}}",
        "defaults: {throttle: {max_queue: -1}}",
        "defaults: {throttle: {key: ip}}",
        "defaults: {throttle: {key: 'header:'}}",
        "defaults: {throttle: {key: 'header:A B'}}",
        "defaults: {throttle: {key: {header: X-Tenant}}}",
        "defaults: {throttle: {key: client_ip, max_keys: 0}}",
        "defaults: {throttle: {pause: 5s}}",
        "defaults: {throttle: {on_store_error: fail}}",
        "defaults: {throttle: {average: 5}}",
        "defaults: {idempotency: 24h}",
        "defaults: {idempotency: {key: X-Key}}",
        "defaults: {idempotency: {header: 'a b'}}",
        "defaults: {idempotency: {methods: [GET]}}",
        "defaults: {idempotency: {methods: []}}",
        "defaults: {idempotency: {methods: POST}}",
        "defaults: {idempotency: {required: 'yes'}}",
        "defaults: {idempotency: {ttl: 24}}",
        "defaults: {idempotency: {scope: [client_ip]}}",
        "defaults: {idempotency: {scope: [header: X-A]}}",
        "defaults: {idempotency: {scope: none}}",
        "defaults: {idempotency: {in_flight: block}}",
        "defaults: {idempotency: {mismatch_status: 400}}",
        "defaults: {idempotency: {mismatch_status: '409'}}",
        "defaults: {idempotency: {keep: []}}",
        "defaults: {idempotency: {keep: [1xx]}}",
        "defaults: {idempotency: {keep: [600]}}",
        "defaults: {idempotency: {on_ambiguous: retry}}",
        "defaults: {idempotency: {max_response: 1MB}}",
        "defaults: {idempotency: {on_store_error: local}}",
        "defaults: {idempotency: {store: memory}}",
        "store: redis",
        "store: sqlite",
        "store: 'sqlite:'",
        "store: sqlite:///keys.db",
        "store: 'sqlite::memory:'",
        "store: sqlite:keys.db?mode=rwc",
        "store: {url: memory, entries: 0}",
        "store: {url: memory, bytes: 64}",
        "store: redis://redis.example?db=1",
        "store: {prefix: a}",
        "store: {url: redis://redis.example, prefix: 'a b'}",
        "store: {url: redis://redis.example, prefix: ''}",
        "store: {url: redis://redis.example, timeout: 200}",
        "defaults: {retry: 0}",
        "defaults: {retry: often}",
        "defaults: {retry: {max_retries: 3}}",
        "defaults: {retry: {on: []}}",
        "defaults: {retry: {on: [200]}}",
        "defaults: {retry: {on: [5XX]}}",
        "defaults: {retry: {on: [breaker_open]}}",
        "defaults: {retry: {unsafe: true}}",
        "defaults: {retry: {backoff: {jitter: 2}}}",
        "defaults: {retry: {backoff: {factor: 0.5}}}",
        "defaults: {fallback: {status: 100}}",
        "defaults: {breaker: true}",
        "upstreams: {a: {urls: ['http://a.example'], retry: 3}}",
        "upstreams: {a: {urls: ['http://a.example'], refused: [200]}}",
        "upstreams: {a: {urls: ['http://a.example'], breaker: 5}}",
        "upstreams: {a: {urls: ['http://a.example'], breaker: {failure_ratio: 0}}}",
        "upstreams: {a: {urls: ['http://a.example'], budget: {ratio: -1}}}",
        "listen: 8080",
        "listen: []",
        "admin: true",
        "access_log: loud",
        "limits: {connections: 0}",
        "limits: {connections: '5'}",
        "upstreams: {a: 'a.example:80'}",
        "upstreams: {a: {url: 'http://a.example'}}",
        "upstreams: {_a: 'http://a.example'}",
        "routes: [{match: v1, upstream: a}]",
        "routes: [{match: /**}]",
        "routes: [{match: {path: /x, methods: [post]}, upstream: a}]",
        "routes: [{match: {path: /x, methods: []}, upstream: a}]",
    ],
)
def test_editor_and_proxy_both_refuse(loaded: Callable[..., Loaded], text: str) -> None:
    data = read(GOOD) | read(text)
    with pytest.raises(ValidationError):
        VALIDATOR.validate(data)
    with pytest.raises(ConfigError):
        loaded(json.dumps(data))
