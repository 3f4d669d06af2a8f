"""``workers`` and ``--workers``: what can be written, and what several cannot share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import ConfigError, Loaded, load
from tests.config.templates import TOP, in_file

ROUTES = """\
workers: »{}
store: {}
upstreams: {{payments: {{urls: ["http://127.0.0.1:9000"]{}}}}}
routes:
  - name: api
    match: /**
    upstream: payments
    {}
"""
LIMIT = "cannot share a limit in memory"
KEYS = "cannot share idempotency keys in memory"
USE_REDIS = "write store: redis://…, or workers: 1"
USE_A_STORE = "write store: redis://… or sqlite:PATH, or workers: 1"


def value(identifier: str, written: str, expected: str) -> object:
    """Return a row: a number as written, and the message it gets."""
    return in_file(identifier, TOP.format(f"workers: »{written}"), f"workers: {expected}")


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        value("none", "0", "0 workers would serve nothing, write 1 or auto"),
        value("fewer than none", "-2", "-2 is out of range, write a number from 1 to 256"),
        value("too many", "257", "257 is out of range, write a number from 1 to 256"),
        value(
            "a word",
            "many",
            '"many" is no number of workers, write 2 (say), or auto for one per core',
        ),
        value(
            "a half",
            "1.5",
            "1.5 is no number of workers, write 2 (say), or auto for one per core",
        ),
        value(
            "a switch",
            "true",
            "true is no number of workers, write 2 (say), or auto for one per core",
        ),
        value("a text", '"4"', '"4" is text, write 4 without quotes'),
        in_file(
            "31 a limit in memory",
            ROUTES.format(4, "memory", "", "throttle: 100/s"),
            f"workers: 4 workers {LIMIT} (routes.api.throttle), {USE_REDIS}",
        ),
        in_file(
            "31 a limit of an upstream",
            ROUTES.format(4, "memory", ", throttle: 100/s", ""),
            f"workers: 4 workers {LIMIT} (upstreams.payments.throttle), {USE_REDIS}",
        ),
        in_file(
            "31 a limit beside a file for keys",
            ROUTES.format(2, "sqlite:keys.db", "", "throttle: 100/s"),
            f"workers: 2 workers {LIMIT} (routes.api.throttle), {USE_REDIS}",
        ),
        in_file(
            "31 pauses alone are a limit too",
            ROUTES.format(2, "memory", "", "throttle: true"),
            f"workers: 2 workers {LIMIT} (routes.api.throttle), {USE_REDIS}",
        ),
        in_file(
            "31 on a machine that may be larger",
            ROUTES.format("auto", "memory", "", "throttle: 100/s"),
            f"workers: auto may be several workers, which {LIMIT} (routes.api.throttle), "
            f"{USE_REDIS}",
        ),
        in_file(
            "31 keys in memory",
            ROUTES.format(4, "memory", "", "idempotency: true"),
            f"workers: 4 workers {KEYS} (routes.api.idempotency), {USE_A_STORE}",
        ),
        in_file(
            "a limit that leaves a worker nothing",
            ROUTES.format(4, "memory", ", max_connections: »3", "").replace("»", "", 1),
            "upstreams.payments.max_connections: 3 cannot be divided among 4 workers, write 4 or "
            "more, or fewer workers",
        ),
        in_file(
            "bodies that fit into no worker's part of the memory",
            TOP.format("workers: 4\nlimits: {replay_memory: »2MiB}"),
            "limits.replay_memory: warning: 2MiB divided among 4 workers is below buffer 1MiB, so "
            "a body that large is never kept, write a larger replay_memory or a smaller buffer",
        ),
        in_file(
            "clients for fewer than there are workers",
            TOP.format("workers: 4\nlimits: {connections: »3}"),
            "limits.connections: 3 cannot be divided among 4 workers, write 4 or more, or fewer "
            "workers",
        ),
    ],
)
def test_message(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


def test_both_troubles_are_told_at_once_with_some_of_those_who_have_them(
    lines: Callable[..., list[str]],
) -> None:
    routes = "".join(f"  - {{match: /{name}, upstream: a}}\n" for name in "bcdef")
    found = lines(
        "workers: 2\nupstreams: {a: 'http://127.0.0.1:9'}\n"
        f"defaults: {{throttle: 1000/s, idempotency: true}}\nroutes:\n{routes}"
    )
    assert found == [
        (
            f"holdfast.yaml:1:10: workers: 2 workers {LIMIT} (routes[0].throttle, "
            f"routes[1].throttle, routes[2].throttle and 2 more), {USE_REDIS}"
        ),
        (
            f"holdfast.yaml:1:10: workers: 2 workers {KEYS} (routes[0].idempotency, "
            f"routes[1].idempotency, routes[2].idempotency and 2 more), {USE_A_STORE}"
        ),
    ]


@pytest.mark.parametrize(
    ("workers", "store", "policies", "settled"),
    [
        pytest.param("1", "memory", "throttle: 100/s", 1, id="one has a memory"),
        pytest.param("4", "memory", "retry: true", 4, id="nothing to share"),
        pytest.param("4", "memory", "throttle: false", 4, id="no limit after all"),
        pytest.param("4", "redis://127.0.0.1", "throttle: 100/s", 4, id="limits in redis"),
        pytest.param("auto", "redis://127.0.0.1", "idempotency: true", None, id="keys in redis"),
        pytest.param("4", "sqlite:keys.db", "idempotency: true", 4, id="keys in a file"),
    ],
)
def test_what_can_be_shared_is_no_fault(
    loaded: Callable[..., Loaded], workers: str, store: str, policies: str, settled: int | None
) -> None:
    found = loaded(ROUTES.format(workers, store, "", policies).replace("»", ""))
    assert (found.settings.workers, found.warnings) == (settled, ())
    assert found.effective["workers"] == ("auto" if settled is None else settled)


def test_one_unless_somebody_says_otherwise(loaded: Callable[..., Loaded]) -> None:
    assert loaded(TOP.format("")).settings.workers == 1


def test_the_command_line_goes_over_the_file(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(TOP.format("workers: 8"))
    assert load(["holdfast.yaml"], {}, workers="2").settings.workers == 2
    assert load(["holdfast.yaml"], {}, workers="auto").settings.workers is None


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        pytest.param(
            "x",
            'x" is no number of workers, write 2 (say), or auto for one per core',
            id="no number",
        ),
        pytest.param("0", "0 workers would serve nothing, write 1 or auto", id="none"),
        pytest.param("999", "999 is out of range, write a number from 1 to 256", id="too many"),
        pytest.param("4", f"4 workers {LIMIT} (routes.api.throttle), {USE_REDIS}", id="31"),
    ],
)
def test_message_about_the_command_line(folder: Path, option: str, expected: str) -> None:
    file = ROUTES.format(1, "memory", "", "throttle: 100/s").replace("»", "")
    (folder / "holdfast.yaml").write_text(file)
    with pytest.raises(ConfigError) as error:
        load(["holdfast.yaml"], {}, workers=option)
    quote = '"' if expected.startswith("x") else ""
    assert str(error.value) == f"--workers: {quote}{expected}"
