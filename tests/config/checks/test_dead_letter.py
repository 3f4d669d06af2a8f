"""Dead letters: what comes of what is written, and the lines that mistakes get."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.config import Loaded
from proxy.policy.settings import (
    ALWAYS_DROPPED,
    USUAL_OUTCOMES,
    DeadLetterSettings,
    Outcomes,
)
from tests.config.templates import LAYERS, MATCH, ROUTE, TOP, in_file

Load = Callable[..., Loaded]
SECTION = ROUTE.replace("{}", "dead_letter: {{{}}}")
PATH = "routes.api.dead_letter"


def of_route(loaded: Load, keys: str) -> DeadLetterSettings | None:
    (only,) = loaded(ROUTE.format(keys)).settings.routes
    return only.dead_letter


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("", None, id="nobody said so: off"),
        pytest.param("dead_letter: false", None, id="false: off"),
        pytest.param("dead_letter: true", DeadLetterSettings(), id="true: what is built in"),
        pytest.param("dead_letter: {}", DeadLetterSettings(), id="an empty mapping: the same"),
        pytest.param(
            "dead_letter: {methods: [POST, PUT, PATCH, DELETE], max_body: 1MiB, ttl: 7d, "
            "headers: {drop: [Authorization, Proxy-Authorization, Cookie, X-Api-Key]}}",
            DeadLetterSettings(),
            id="what is built in, spelled out",
        ),
        pytest.param(
            "dead_letter: {methods: [GET], max_body: 1KiB, ttl: 1h}",
            DeadLetterSettings(methods=frozenset({"GET"}), max_body=1024, ttl=3600),
            id="other values",
        ),
        pytest.param(
            "dead_letter: {headers: {drop: [X-Api-Key]}}",
            DeadLetterSettings(drop=frozenset({"x-api-key"}) | ALWAYS_DROPPED),
            id="a list replaces the built-in one, but for what is never kept",
        ),
        pytest.param(
            "dead_letter: {headers: {drop: []}}",
            DeadLetterSettings(drop=ALWAYS_DROPPED),
            id="nothing is dropped but what is never kept",
        ),
        pytest.param(
            "dead_letter: {on: [default, refusals]}",
            DeadLetterSettings(
                on=replace(USUAL_OUTCOMES, names=USUAL_OUTCOMES.names | {"refusals"})
            ),
            id="what is built in, and refusals",
        ),
        pytest.param(
            "retry: {on: [503, 403+hint]}\n    dead_letter: true",
            DeadLetterSettings(on=Outcomes(frozenset(), frozenset({503}), frozenset({403}))),
            id="as retry.on",
        ),
        pytest.param(
            "retry: {on: [503, 403+hint]}\n    dead_letter: {on: [default, 500]}",
            DeadLetterSettings(on=Outcomes(frozenset(), frozenset({500, 503}), frozenset({403}))),
            id="default is what it would be",
        ),
        pytest.param(
            "retry: true\n    dead_letter: {on: [500]}",
            DeadLetterSettings(on=Outcomes(frozenset(), frozenset({500}))),
            id="a list of its own",
        ),
    ],
)
def test_settings(loaded: Load, written: str, expected: DeadLetterSettings | None) -> None:
    assert of_route(loaded, written) == expected


def test_a_route_goes_before_its_policy_key_by_key(loaded: Load) -> None:
    text = LAYERS.format(
        "dead_letter: true", "dead_letter: {ttl: 1d}", "dead_letter: {max_body: 0B}"
    )
    (only,) = loaded(text).settings.routes
    assert only.dead_letter == DeadLetterSettings(ttl=86_400, max_body=0)


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        pytest.param("", {}, "state", id="beside the file"),
        pytest.param("state_dir: ./letters", {}, "letters", id="relative to the file"),
        pytest.param("state_dir: /var/lib/h", {}, "/var/lib/h", id="from the root"),
        pytest.param(
            "state_dir: ./letters", {"HOLDFAST_STATE_DIR": "/else"}, "/else", id="the environment"
        ),
        pytest.param("", {"HOLDFAST_STATE_DIR": "/a$b"}, "/a$b", id="taken as it is"),
        pytest.param(
            "state_dir: ./letters", {"HOLDFAST_STATE_DIR": ""}, "letters", id="an empty one is none"
        ),
    ],
)
def test_state_dir(
    loaded: Load, folder: Path, text: str, environ: dict[str, str], expected: str
) -> None:
    settings = loaded(TOP.format(text), environ).settings
    assert settings.state_dir == str(folder / expected)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        in_file(
            "no time",
            SECTION.format("ttl: »0s"),
            f"{PATH}.ttl: 0s keeps no letter, write 7d (say), or dead_letter: false if that is "
            f"meant",
        ),
        in_file(
            "no unit",
            SECTION.format("max_body: »100"),
            f"{PATH}.max_body: 100 has no unit, write 100B",
        ),
        in_file(
            "a small method",
            SECTION.format("methods: [»post]"),
            f"{PATH}.methods[0]: methods are upper case, write POST",
        ),
        in_file(
            "no header",
            SECTION.format('headers: {{drop: [»"a b"]}}'.replace("{{", "{").replace("}}", "}")),
            f'{PATH}.headers.drop[0]: "a b" is no name of a header, write X-Tenant (say)',
        ),
        in_file(
            "a word of elsewhere",
            ROUTE.format("»dlq: true"),
            "routes.api.dlq: unknown key, write dead_letter",
        ),
        in_file(
            "refusals alone",
            SECTION.format("on: »[refusals]"),
            f"{PATH}.on: warning: this list replaces the built-in one, so no response makes a dead "
            f"letter, write on: [default, refusals] to keep refusals, too",
        ),
        in_file(
            "failures without a response alone",
            SECTION.format("on: »[reset, timeout]"),
            f"{PATH}.on: warning: this list replaces the built-in one, so no response makes a dead "
            f"letter, write on: [default, 500] (say), or leave it out: what got no response is "
            "kept",
        ),
        in_file(
            "one refusal",
            SECTION.format("on: [default, »throttled]"),
            f'{PATH}.on[1]: "throttled" is a refusal of our own, write refusals for all of them',
        ),
        in_file(
            "what is kept anyway",
            SECTION.format("on: [default, »certificate]"),
            f'{PATH}.on[1]: "certificate" is always kept, remove it',
        ),
        in_file(
            "what is never kept",
            SECTION.format("on: [default, »truncated]"),
            f'{PATH}.on[1]: "truncated" is never kept (the client has the beginning of the '
            f"answer), remove it",
        ),
        in_file(
            "refusals in the wrong list",
            ROUTE.format("retry:\n      on: [default, »refusals]"),
            'routes.api.retry.on[1]: "refusals" are never retried, write it in dead_letter.on',
        ),
        in_file(
            "no such outcome",
            SECTION.format("on: [default, »refusal]"),
            f'{PATH}.on[1]: "refusal" is no outcome, did you mean refusals?',
        ),
        in_file(
            "only reads",
            MATCH.format("GET /a") + "    »dead_letter: true\n",
            f"{PATH}: warning: the route matches GET only and dead_letter keeps POST, PUT, PATCH "
            f"and DELETE, remove it or write methods: [GET] in it",
        ),
        in_file(
            "more than memory holds until then",
            SECTION.format("max_body: »2MiB"),
            f"{PATH}.max_body: warning: 2MiB is above buffer 1MiB, and a body beyond that is not "
            f"kept, write a larger buffer or a smaller max_body",
        ),
        in_file(
            "no folder to be made in",
            "state_dir: »/no/such/place\n" + ROUTE.format("dead_letter: true"),
            "state_dir: /no/such/place has no folder to be made in, create that or correct the "
            "path",
        ),
        in_file(
            "a file",
            "state_dir: »holdfast.yaml\n" + ROUTE.format("dead_letter: true"),
            "state_dir: holdfast.yaml is a file, write the path of a folder",
        ),
    ],
)
def test_line(only_line: Callable[..., None], marked: str, expected: str) -> None:
    only_line(marked, expected)


def test_a_folder_is_asked_for_only_where_letters_are_kept(loaded: Load) -> None:
    assert loaded(TOP.format("state_dir: /no/such/place")).warnings == ()


def test_defaults_that_keep_letters_are_meant_for_routes_that_have_some(loaded: Load) -> None:
    text = MATCH.format("GET /a") + "defaults: {dead_letter: true}\n"
    assert loaded(text).warnings == ()
