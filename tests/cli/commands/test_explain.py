"""``holdfast explain`` as a user sees it."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from proxy.cli import main

FILE = """\
upstreams:
  pay:
    urls: [http://127.0.0.1:1]
    throttle: {rate: 100/s, burst: 5}
  spare: http://127.0.0.1:2
  poor: {urls: [http://127.0.0.1:3], budget: {ratio: 0, min_per_second: 0}}
defaults:
  retry: true
policies:
  patient: {timeout: 1m, retry: {attempts: 5}}
routes:
  - name: tenant
    match: {path: /v1/**, host: "*.acme.example", headers: {X-Tenant: acme}}
    upstream: pay
  - name: partner
    match: {path: /v1/**, headers: {Authorization: Bearer s3cret}}
    upstream: pay
  - name: reads
    match: GET /v1/**
    upstream: spare
  - name: charges
    match: POST /v1/charges
    upstream: pay
    policy: patient
    throttle: {rate: 10/s, key: "header:X-Api-Key"}
    idempotency: {on_ambiguous: hold}
    headers: {request: {set: {X-Token: "${TOKEN}"}}}
  - name: odd
    match: /odd/**
    upstream: spare
    timeout: 2s
    buffer: 64KiB
    max_body: 1MiB
    retry: {on: [503], retry_after: {max: 10s}, backoff: {jitter: none}}
    fallback: {upstream: pay, on: [502]}
  - name: plain
    match: /plain
    upstream: spare
    retry: false
  - name: slow
    match: /slow
    upstream: poor
    timeout: none
    throttle: {rate: 1/m, burst: 1}
  - name: poor
    match: /poor
    upstream: poor
"""

READS = """\
GET /v1/x?page=2 at api.example

The route reads (holdfast.yaml:19) takes it to the upstream spare.
Earlier routes that do not match:
  tenant: the host is not *.acme.example
  partner: there is no header authorization

Its policy:
  timeout: 30s                          # built-in
  idle_timeout: 5m                      # built-in
  max_body: none                        # built-in
  buffer: 1MiB                          # built-in
  upgrades: [websocket]                 # built-in
  retry:                                # holdfast.yaml:8 (defaults)
    attempts: 3                         # built-in
    on: [connect, refused, reset, timeout, 408, 502, 503, 504] # built-in
    unsafe: auto                        # built-in
    attempt_timeout: none               # built-in
    backoff:                            # built-in
      strategy: exponential             # built-in
      base: 100ms                       # built-in
      factor: 2                         # built-in
      max: 30s                          # built-in
      jitter: full                      # built-in
    retry_after:                        # built-in
      max: 1m                           # built-in
  throttle: false                       # off, built-in
  idempotency: false                    # off, built-in
  fallback: false                       # off, built-in
  dead_letter: false                    # off, built-in
  hand_off: false                       # off, built-in

The upstream spare:
  urls: [http://127.0.0.1:2]            # holdfast.yaml:5
  connect_timeout: 5s                   # built-in
  max_connections: 1024                 # built-in
  honours_key: false                    # off, built-in
  refused: [421, 425, 429]              # built-in
  budget:                               # built-in
    ratio: 0.2                          # built-in
    min_per_second: 1                   # built-in
    window: 10s                         # built-in
  throttle: false                       # off, built-in
  breaker: false                        # off, built-in

"""
NO_OUTCOME = """\
Write --outcome 503 (say), once for each attempt, to see what would follow.
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.yaml").write_text(FILE)
    return tmp_path


def run(*arguments: str, files: tuple[str, ...] = ("holdfast.yaml",)) -> tuple[int, str]:
    options = [option for file in files for option in ("-c", file)]
    result = CliRunner().invoke(
        main,
        ["explain", *options, *arguments],
        env={"TOKEN": "t0ken", "COLUMNS": "200"},
        prog_name="holdfast",
    )
    return result.exit_code, result.output


def explained(*arguments: str) -> str:
    status, output = run(*arguments)
    assert status == 0, output
    assert all(len(line) <= 80 for line in output.splitlines())
    return output


def timeline(*arguments: str) -> str:
    """What is said of attempts and their end."""
    before, said, after = explained(*arguments).partition(
        "What follows, if no other request is in flight:"
    )
    assert before
    assert said
    return after.removeprefix("\n")


def test_route_and_policy() -> None:
    assert explained("GET", "http://api.example:80/v1/x?page=2") == READS + NO_OUTCOME


def test_host_from_a_header() -> None:
    output = explained("GET", "/v1/x?page=2", "-H", "Host: API.example:8080")
    assert output == READS + NO_OUTCOME


def test_waits_are_ranges() -> None:
    outcomes = ("--outcome", "503", "--outcome", "429:retry-after=5", "--outcome", "200")
    assert timeline("GET", "/v1/x", *outcomes) == (
        "  1. 503: retried\n"
        "     wait between 0 and 100 ms (back-off)\n"
        "  2. 429:retry-after=5: retried\n"
        "     wait between 5 and 7.5 s (as the upstream asks)\n"
        "  3. 200: recovered (it is an answer for the client, after a retry)\n"
        "The client gets the upstream's 200 with Holdfast-Attempts: 3 after 5 to 7.6 s.\n"
    )


def test_a_roll_makes_them_exact() -> None:
    outcomes = ("--outcome", "503", "--outcome", "reset", "--outcome", "200", "--outcome", "200")
    assert timeline("GET", "/v1/x", *outcomes, "--roll", "0.5") == (
        "  1. 503: retried\n"
        "     wait 50 ms (back-off)\n"
        "  2. reset: retried\n"
        "     wait 100 ms (back-off)\n"
        "  3. 200: recovered (it is an answer for the client, after a retry)\n"
        "The client gets the upstream's 200 with Holdfast-Attempts: 3 after 150 ms. 1\n"
        "outcome is not used.\n"
    )


def test_outcomes_run_out() -> None:
    assert timeline("GET", "/v1/x", "--outcome", "503") == (
        "  1. 503: retried\n"
        "     wait between 0 and 100 ms (back-off)\n"
        "Attempt 2 follows: write one more --outcome to see what comes next.\n"
    )


def test_a_dead_letter(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(f"{FILE}    dead_letter: true\n")
    assert timeline("POST", "/poor", "--outcome", "reset").startswith(
        "  1. reset: not_repeatable (it may have run, and may not run twice)\n"
        "The client gets 502 reset from Holdfast at once.\n"
        "It is kept as a dead letter.\n"
        "To have it sent again"
    )
    assert "dead letter" not in timeline("POST", "/poor", "--outcome", "404")
    assert "dead letter" not in timeline("GET", "/poor", *["--outcome", "503"] * 2)
    assert '"dead_letter": true' in explained_as_it_is(
        "POST", "/poor", "--outcome", "503", "--json"
    )


def test_chance_decides_how_it_ends() -> None:
    fields = ("-H", "Holdfast-Timeout: 80ms")
    assert timeline("GET", "/v1/x", *fields, "--outcome", "503", "--outcome", "200") == (
        "  1. 503: retried; or deadline (the time left is too short for the wait and\n"
        "     another attempt)\n"
        "     wait between 0 and 70 ms (back-off)\n"
        "  2. 200: recovered (it is an answer for the client, after a retry)\n"
        "The client gets the upstream's 200 with Holdfast-Attempts: 2 after 0 to 70 ms.\n"
        "Or: The client gets the upstream's 503 at once. 1 outcome is not used.\n"
        "To have it sent again, one of:\n"
        "  - have the client send a longer Holdfast-Timeout\n"
        "  - write retry: {backoff: {base: 50ms}} (say)\n"
    )


def test_a_post_with_a_key() -> None:
    fields = ("-H", "Idempotency-Key: 4711", "-H", "X-Api-Key: k")
    output = explained("POST", "/v1/charges", *fields, "--outcome", "reset")
    assert output.partition("\n\nEach ")[2] == (
        "attempt passes the throttle of the route charges (10 in 1s; its own bucket\n"
        "by header:x-api-key) and the upstream pay (100 in 1s, burst 5: at most 104 in\n"
        "any 1s).\n"
        "\n"
        "What follows, if no other request is in flight:\n"
        "  1. reset: not_repeatable (it may have run, and may not run twice)\n"
        "The client gets 502 reset from Holdfast at once.\n"
        "Its key: ambiguous; it may have run, so duplicates get 409 for 1d, or until\n"
        "holdfast keys release.\n"
        "To have it sent again, one of:\n"
        "  - write honours_key: true in upstreams.pay, if it runs a request with the same\n"
        "    key once\n"
        "  - write retry: {unsafe: always}, and it may run twice\n"
    )


def test_nothing_secret_is_shown() -> None:
    fields = ("-H", "Idempotency-Key: k3y", "-H", "X-Api-Key: ap1", "-H", "Authorization: Bearer x")
    output = explained("POST", "/v1/charges", *fields, "--outcome", "201")
    assert "  partner: the header authorization is not ***\n" in output
    assert '        X-Token: "***"                  # holdfast.yaml:27\n' in output
    for secret in ("s3cret", "t0ken", "k3y", "ap1"):
        assert secret not in output


def test_no_route_matches() -> None:
    assert explained("PUT", "/v2") == (
        "PUT /v2\n"
        "\n"
        "No route matches, so it gets 404 no_route:\n"
        "  tenant: the path is not /v1/**\n"
        "  partner: the path is not /v1/**\n"
        "  reads: the path is not /v1/**\n"
        "  charges: the path is not /v1/charges\n"
        "  odd: the path is not /odd/**\n"
        "  plain: the path is not /plain\n"
        "  slow: the path is not /slow\n"
        "  poor: the path is not /poor\n"
    )


def test_of_many_routes_those_with_another_path_are_counted(folder: Path) -> None:
    routes = "".join(f"  - {{match: /r/{number}, upstream: a}}\n" for number in range(20))
    (folder / "holdfast.yaml").write_text(
        "upstreams: {a: 'http://127.0.0.1:1'}\nroutes:\n"
        f"  - {{match: POST /x, upstream: a}}\n{routes}  - {{name: x, match: /**, upstream: a}}\n"
    )
    assert "  /x: the method is not POST\n  20 routes: the path is another\n" in explained(
        "GET", "/x"
    )


@pytest.mark.parametrize(
    ("request_line", "outcomes", "why", "suggestion"),
    [
        ("GET /v1/x", "500", "not_retryable_status", "write retry: {on: [default, 500]}"),
        ("GET /odd/x", "500", "not_retryable_status", "write retry: {on: [503, 500]}"),
        ("GET /odd/x", "reset", "not_retryable_kind", "write retry: {on: [503, reset]}"),
        ("GET /v1/x", "404", "success", "write retry: {on: [default, 404]} to have it repeated"),
        (
            "GET /v1/x",
            "certificate",
            "not_retryable_kind",
            "correct the tls of upstreams.spare: it is never repeated",
        ),
        ("GET /v1/x", "503 503 503", "attempts_exhausted", "write retry: {attempts: 4} or more"),
        ("GET /v1/x", "429:retry-after=90", "hint_too_long", "write retry: {retry_after: {max:"),
        ("GET /odd/x", "503:retry-after=5", "deadline", "write timeout: 10s (say)"),
        ("GET /v1/x", "timeout", "deadline", "write retry: {attempt_timeout: 10s} to leave time"),
        ("PUT /odd/x -H Content-Length:100000", "503", "body_too_large", "write buffer: 100000B"),
        (
            "GET /v1/x",
            "503:x-should-retry=false",
            "server_said_no",
            "ask the upstream's owner: nothing in the file changes it",
        ),
        ("POST /odd/x", "503", "not_repeatable", "write honours_key: true in upstreams."),
        ("POST /odd/x", "503", "not_repeatable", "write refused: [421, 425, 429, 503] in"),
        ("GET /poor", "503", "budget", "write budget: false in upstreams.poor"),
        ("GET /slow", "503", "throttled", "write max_wait: 2m (say) in the route's throttle"),
        ("GET /plain", "503", "no verdict", "write retry: true in the route, in a policy or in"),
    ],
)
def test_where_the_answer_is_no(
    request_line: str, outcomes: str, why: str, suggestion: str
) -> None:
    words = [option for word in outcomes.split() for option in ("--outcome", word)]
    said = timeline(*request_line.split(), *words)
    number = len(outcomes.split())
    assert f"  {number}. {outcomes.rsplit(maxsplit=1)[-1]}: {why}" in said
    assert f" - {suggestion}" in " ".join(said.split())


@pytest.mark.parametrize(
    ("request_line", "outcome", "end"),
    [
        ("GET /v1/x", "200", "the upstream's 200 at once"),
        ("GET /odd/x", "502", "what the upstream pay says, which is asked once, at once"),
        ("GET /odd/x", "connect", "502 connect from Holdfast at once"),
        ("GET /odd/x", "timeout", "504 timeout from Holdfast after 2 s"),
        (
            "GET /odd/x",
            "truncated",
            "the part of the response that arrived, and its connection is closed at once",
        ),
        (
            "PUT /odd/x -H Content-Length:2000000",
            "200",
            "413 body_too_large from Holdfast (The body is larger than max_body) at once",
        ),
    ],
)
def test_what_the_client_gets(request_line: str, outcome: str, end: str) -> None:
    said = timeline(*request_line.split(), "--outcome", outcome).replace("\n", " ")
    assert f"The client gets {end}." in said


def test_nothing_ends_a_silence_without_limits() -> None:
    assert timeline("GET", "/slow", "--outcome", "timeout") == (
        "  1. timeout: nothing ends it\n"
        "No timeout ends this, so the client waits until it gives up: write a timeout.\n"
    )


def test_the_policy_is_yaml() -> None:
    output = explained("POST", "/v1/charges")
    block = output.partition("Its policy:\n")[2].partition("\n\n")[0]
    policy = yaml.safe_load(block)
    assert policy["timeout"] == "1m"
    assert policy["retry"]["attempts"] == 5
    assert policy["throttle"]["key"] == "header:x-api-key"
    assert policy["headers"]["request"]["set"] == {"X-Token": "***"}
    assert policy["fallback"] is False


def test_several_files(folder: Path) -> None:
    (folder / "site.yaml").write_text("defaults:\n  timeout: 7s\n")
    status, output = run("GET", "/v1/x", files=("holdfast.yaml", "site.yaml"))
    assert status == 0
    assert "  timeout: 7s                           # site.yaml:2 (defaults)\n" in output


def test_for_programs() -> None:
    arguments = ("GET", "/v1/x", "--outcome", "503", "--outcome", "200", "--json", "--roll", "0")
    answer = json.loads(explained_as_it_is(*arguments))
    assert answer["route"] == "reads"
    assert answer["not_taken_by"][0] == {
        "route": "tenant",
        "why": "the host is not *.acme.example",
    }
    assert {"key": "retry", "value": True, "where": "holdfast.yaml:8", "writer": "defaults"} in (
        answer["policy"]
    )
    assert answer["attempts"][0] == {
        "number": 1,
        "outcome": "503",
        "why": ["retried"],
        "meaning": ["another attempt follows"],
        "queued": [0.0, 0.0],
        "wait": [0.0, 0.0],
        "source": ["backoff"],
        "same_url": False,
    }
    assert answer["endings"] == [
        {
            "attempts": 2,
            "text": "The client gets the upstream's 200 with Holdfast-Attempts: 2 at once.",
            "seconds": [0.0, 0.0],
            "remedies": [],
            "advice": [],
            "key": None,
            "key_text": "",
            "dead_letter": False,
            "handed_off": False,
        }
    ]


EVERYTHING = [
    ("GET", "/v1/x?page=2", "-H", "Host: api.example"),
    ("PUT", "/v2"),
    ("POST", "/v1/charges", "-H", "Idempotency-Key: 4711", "--outcome", "reset"),
    ("POST", "/v1/charges", "--outcome", "429:retry-after=2", "--outcome", "503"),
    ("GET", "/v1/x", "-H", "Holdfast-Timeout: 80ms", "--outcome", "503", "--outcome", "200"),
    ("GET", "/odd/x", "--outcome", "502"),
    ("GET", "/slow", "--outcome", "503"),
    ("GET", "/slow", "--outcome", "timeout"),
    ("GET", "/plain", "--outcome", "503", "--outcome", "200"),
    ("POST", "/v1/charges", "--outcome", "503:x-should-retry=false"),
]


# What the text has in every explanation, and around numbers.
ALWAYS = """
The route takes it to the upstream. Earlier routes that do not match: No route matches, so it gets
404 no_route: What follows, if no other request is in flight: Or: To have it sent again, one of:
- wait between and after in the queue (back-off) (as the upstream asks) no verdict: nothing is
repeated nothing ends it at ms s or. No setting has it sent again. What may help: Write --outcome
503 (say), once for each attempt, to see what
would follow.
"""


@pytest.mark.parametrize("arguments", EVERYTHING)
def test_json_has_everything_that_the_text_has(arguments: tuple[str, ...]) -> None:
    answer = explained_as_it_is(*arguments, "--format", "json")
    assert answer == explained_as_it_is(*arguments, "--json")
    known = {*words_of(ALWAYS), *(w for t in strings_in(json.loads(answer)) for w in words_of(t))}
    text = explained(*arguments)
    head, _, rest = text.partition("\nIts policy:\n")
    told = head + rest.partition("\n\nThe upstream ")[2].partition("\n\n")[2]
    unknown = {w for w in words_of(told) if w not in known and not w.replace(".", "").isdecimal()}
    assert not unknown


def words_of(text: str) -> list[str]:
    return [word.strip("():;,.") for word in text.split()]


def strings_in(value: object) -> list[str]:
    """All texts and names in a JSON value."""
    if isinstance(value, dict):
        return [text for item in value.items() for part in item for text in strings_in(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings_in(part)]
    return [str(value)]


def test_json_has_the_numbers_of_the_text(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(
        "upstreams: {a: 'http://127.0.0.1:1'}\nroutes:\n  - {name: x, match: /**, upstream: a, "
        "retry: {backoff: {base: 500ms}}, throttle: {rate: 1/s, burst: 1}}\n"
    )
    arguments = ("GET", "/x", "--outcome", "503", "--outcome", "200")
    answer = json.loads(explained_as_it_is(*arguments, "--format", "json"))
    first, second = answer["attempts"]
    assert first["wait"] == [0.0, pytest.approx(0.5)]
    assert second["queued"] == pytest.approx([0.521, 1.021], abs=0.001)
    (ending,) = answer["endings"]
    assert ending["seconds"] == pytest.approx([1.021, 1.021], abs=0.001)
    assert answer["limits"] == "Each attempt passes the throttle of the route x (1 in 1s)."
    assert (answer["where"], answer["upstream_name"]) == ("holdfast.yaml:3", "a")
    text = explained(*arguments)
    assert "     wait between 0 and 500 ms (back-off)\n" in text
    assert "     after 0.521 to 1.021 s in the queue\n" in text
    assert "2 after 1.021 s.\n" in text


def explained_as_it_is(*arguments: str) -> str:
    status, output = run(*arguments)
    assert status == 0
    return output


def test_faults_are_told_as_by_check(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(f"{FILE}listen: 80\n")
    status, output = run("GET", "/v1/x")
    assert status == 1
    assert (
        output
        == CliRunner().invoke(main, ["check", "-c", "holdfast.yaml"], env={"TOKEN": "t0ken"}).output
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("get", "/x"), "methods are case-sensitive, write GET"),
        (("/x", "GET"), "'/x' is no method, write GET /path (say)"),
        (("TRACE", "/x"), "TRACE is never served (405), write another method"),
        (("GET", "x/y"), "'x/y' is no URL, write /path or http://host/path"),
        (("OPTIONS", "*"), "Holdfast answers OPTIONS * itself, write /path or http://host/path"),
        (("OPTIONS", "/x", "-H", "Max-Forwards: 0"), "Holdfast answers OPTIONS /x itself, write"),
        (("GET", "/a/../b"), "such a request gets 400: The path holds a '.' or '..' segment"),
        (("GET", "/x", "-H", "Host: a b"), "such a request gets 400: The host is not valid"),
        (("GET", "/x", "-H", "Via: 1.1 holdfast"), "such a request gets 508"),
        (("GET", "/x", "-H", "X-Tenant"), "a header field is NAME: VALUE, write -H 'X-Tenant:"),
        (("GET", "/x", "-H", "Content-Length: ten"), "a length is a number, write -H"),
        (("GET", "/x", "--outcome", "slow"), "'slow' is no outcome, write a status from 200 to"),
        (("GET", "/x", "--outcome", "700"), "'700' is no outcome, write a status from 200 to 599"),
        (("GET", "/x", "--outcome", "timeout:a=b"), "'timeout:a=b' is no outcome, write a status"),
        (("GET", "/x", "--outcome", "429:5"), "'429:5' has no header field after the colon, write"),
        (("GET", "/x", "--roll", "1"), "1.0 is not in the range 0<=x<1"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], told: str) -> None:
    status, output = run(*arguments)
    assert status == 2
    assert told in output


REPEATED = """\
upstreams:
  pay: {{urls: [http://127.0.0.1:1, http://127.0.0.1:2]{}}}
routes:
  - {{match: /**, upstream: pay, timeout: 5s, retry: {{{}backoff: {{base: 2s, jitter: none}}}}}}
"""
KEYED = ("POST", "/x", "-H", "Idempotency-Key: k")


def test_a_key_is_good_at_one_url(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(REPEATED.format(", honours_key: true", ""))
    stays = "     then the same URL again: the others do not know its key\n"
    assert stays in timeline(*KEYED, "--outcome", "503", "--outcome", "200")
    assert stays not in timeline(*KEYED, "--outcome", "429", "--outcome", "200")
    assert stays not in timeline("GET", "/x", "--outcome", "503", "--outcome", "200")
    (folder / "holdfast.yaml").write_text(REPEATED.format(", honours_key: {shared: true}", ""))
    assert stays not in timeline(*KEYED, "--outcome", "503", "--outcome", "200")


def test_a_key_is_good_for_a_while(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(REPEATED.format(", honours_key: {for: 6s}", ""))
    said = timeline(*KEYED, "--outcome", "503")
    assert "  1. 503: key_expired (by then the upstream may have forgotten its key" in said
    assert "\n  - write a longer honours_key: {for: 15s} (say) in upstreams.pay, if it" in said


def test_what_the_upstream_replays_is_final(folder: Path) -> None:
    (folder / "holdfast.yaml").write_text(REPEATED.format(", honours_key: true", ""))
    said = timeline(*KEYED, "--outcome", "503:idempotent-replayed=true")
    assert "  1. 503:idempotent-replayed=true: final_answer (the upstream says" in said


@pytest.mark.parametrize(
    ("outcome", "suggestion", "upstream"),
    [
        ("reset", "write unsafe: auto and honours_key: true in", ", honours_key: true"),
        ("503", "write unsafe: auto and honours_key: true in", ", honours_key: true"),
        ("503", "write unsafe: auto and refused: [421, 425, 429, 503]", ", refused: [429, 503]"),
        ("429", "write unsafe: auto, if its 429 says", ""),
    ],
)
def test_what_it_says_to_write_helps(
    outcome: str, suggestion: str, upstream: str, folder: Path
) -> None:
    (folder / "holdfast.yaml").write_text(REPEATED.format("", "unsafe: never, "))
    said = timeline(*KEYED, "--outcome", outcome)
    assert f"  1. {outcome}: not_repeatable" in said
    assert suggestion in said
    assert "write unsafe: auto, which" not in said
    (folder / "holdfast.yaml").write_text(REPEATED.format(upstream, "unsafe: auto, "))
    assert f"  1. {outcome}: retried\n" in timeline(*KEYED, "--outcome", outcome)


def test_a_verdict_and_what_becomes_of_the_key_agree(folder: Path) -> None:
    held = "idempotency: {on_ambiguous: hold}, retry:"
    (folder / "holdfast.yaml").write_text(REPEATED.format("", "").replace("retry:", held))
    said = timeline(*KEYED, "--outcome", "503")
    assert "not_repeatable (it may have run, and may not run twice)" in said
    assert "Its key: ambiguous; it may have run" in said
    said = timeline(*KEYED, "--outcome", "408")
    assert "not_repeatable (after a 408 only what may run twice is repeated)" in said
    assert "Its key: free; a later duplicate runs." in said
