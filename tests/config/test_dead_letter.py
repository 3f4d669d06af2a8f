"""Dead letters: what comes of what is written, and the lines that mistakes get."""

from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import Loaded
from proxy.policy.settings import ALWAYS_DROPPED, DeadLetterSettings
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
            "headers: {drop: [Authorization, Cookie]}}",
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
