"""What a new user asks, and that each answer is two clicks away from the README.

An answer is a page with an anchor, and some words that stand in that section: if the section moves,
or says something else, the question has no answer any more.
"""

import re
from pathlib import Path

import pytest

from tests.docs.kit.blocks import slug
from tests.docs.kit.pages import ROOT, reachable_from

README = ROOT / "README.md"

ANSWERS = {
    "What is it?": ("README.md#holdfast", "sidecar proxy"),
    "How do I install it?": ("README.md#quick-start", "pip install ."),
    "How do I put it in front of my own service?": (
        "README.md#quick-start",
        "holdfast run holdfast.yaml",
    ),
    "How do I try it without a service?": ("README.md#two-commands", "make demo"),
    "How do I check a file?": ("README.md#quick-start", "holdfast check holdfast.yaml"),
    "What do durations and sizes look like?": (
        "docs/reference/configuration.md#durations-sizes-and-rates",
        "`1m30s`",
    ),
    "How do I keep secrets out of the file?": (
        "docs/reference/configuration.md#variables-and-secrets",
        "${file:PATH}",
    ),
    "How do I get completion in my editor?": (
        "docs/reference/configuration.md#editor-support",
        "yaml-language-server",
    ),
    "Which route takes a request?": ("docs/reference/configuration.md#matching", "The first route"),
    "How do I set one policy for all routes?": (
        "docs/reference/configuration.md#defaults-and-policies",
        "precedence",
    ),
    "Will it send my POST twice?": ("docs/explanation/repeats.md#what-is-repeated", "may have run"),
    "Why was my request not retried?": (
        "docs/how-to/not-retried.md#the-reasons",
        "not_repeatable",
    ),
    "How long does it wait between attempts?": (
        "docs/explanation/repeats.md#how-long-it-waits",
        "Retry-After",
    ),
    "How do I stay under 20 calls a second?": (
        "docs/explanation/limits.md#a-hard-limit-of-n-per-second",
        "margin",
    ),
    "How do I share a limit between instances?": (
        "docs/how-to/several-instances.md#the-file",
        "redis://",
    ),
    "How do I give each tenant a limit of its own?": (
        "docs/explanation/limits.md#limits-per-caller",
        "header:",
    ),
    "What happens while Redis is down?": (
        "docs/how-to/redis-down.md#decide-what-happens-when-redis-is-down",
        "on_store_error",
    ),
    "What does a duplicate of a request get?": (
        "docs/explanation/idempotency.md#what-a-duplicate-gets",
        "key_mismatch",
    ),
    "What do I do with 409 outcome_unknown?": (
        "docs/how-to/held-key.md#1-look-at-the-record",
        "keys show",
    ),
    "When can a payment run twice in spite of its key?": (
        "docs/explanation/promises.md#a-second-execution",
        "on_ambiguous",
    ),
    "Where do failed requests go, and how do I send them again?": (
        "docs/explanation/dead-letters.md#replay",
        "--force",
    ),
    "How do I run it in Kubernetes?": (
        "docs/how-to/kubernetes.md#the-file",
        "restartPolicy: Always",
    ),
    "How do I run it in a container?": ("docs/how-to/deploy.md#container", "docker run"),
    "How do I reload without losing requests?": ("docs/how-to/operate.md#reload", "SIGHUP"),
    "How does it shut down?": ("docs/how-to/operate.md#drain", "drain_timeout"),
    "How do I see what is going on?": (
        "docs/how-to/operate.md#see-what-is-going-on",
        "holdfast status",
    ),
    "How do I find out what happened to one request?": (
        "docs/how-to/operate.md#a-caller-complains",
        "holdfast attempts",
    ),
    "Which metrics are there, and which alerts?": (
        "docs/reference/metrics.md#alerts-and-dashboard",
        "alerts.yaml",
    ),
    "What does this error of Holdfast mean for the caller?": (
        "docs/reference/problem-types.md#throttled",
        "Retry-After",
    ),
    "Does it speak HTTP/2, gRPC or WebSocket?": ("docs/reference/http.md#protocols", "gRPC"),
    "Does it take part in traces?": ("docs/reference/http.md#messages", "no\n  spans of its own"),
    "Can it reach upstreams through a corporate proxy?": (
        "docs/reference/http.md#protocols",
        "**No outbound proxy.**",
    ),
    "Does it follow redirects?": ("docs/reference/http.md#messages", "are not followed"),
    "Does it compress?": ("docs/reference/http.md#messages", "Nothing is compressed"),
    "How do I leave an upstream alone that keeps failing?": (
        "docs/explanation/repeats.md#breaker",
        "breaker",
    ),
    "What does a caller get in place of a failure?": (
        "docs/explanation/repeats.md#fallback",
        "fallback",
    ),
    "How do I set a credential for the upstream?": (
        "docs/reference/configuration.md#policy-keys",
        "`headers.request.set`",
    ),
    "How do I trust an authority of my own?": (
        "docs/reference/configuration.md#an-upstream",
        "`tls.ca`",
    ),
    "How do I bound the time of a call?": ("docs/explanation/request-life.md#time", "`timeout`"),
    "How do I list failed requests?": ("docs/how-to/dead-letters.md#1-find-it", "dlq list"),
    "How do I keep keys when a container is replaced?": (
        "docs/how-to/deploy.md#container",
        "sqlite:/var/lib/holdfast/keys.db",
    ),
    "Must I keep the name of a route?": (
        "docs/explanation/promises.md#a-second-execution",
        "give routes a `name`, and keep it",
    ),
    "What does it cost in CPU and latency?": ("README.md#what-it-costs", "Envoy"),
    "Can it use more than one core?": (
        "docs/how-to/workers.md#use-more-than-one-core",
        "workers: 2",
    ),
    "Is it safe to expose the admin listener?": ("docs/reference/admin-api.md#access", "token"),
    "What are my Envoy settings called here?": (
        "docs/how-to/from-envoy.md#their-words-and-ours",
        "retry",
    ),
}


def section(page: Path, anchor: str) -> str:
    """The section of *page* below the heading with *anchor*, its parts included."""
    text = page.read_text(encoding="utf-8")
    fences = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    outside = fences.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    headings = list(re.finditer(r"^(#+) (.+)$", outside, re.MULTILINE))
    for number, heading in enumerate(headings):
        if slug(heading[2]) == anchor:
            later = (one for one in headings[number + 1 :] if len(one[1]) <= len(heading[1]))
            end = next((one.start() for one in later), len(text))
            return text[heading.start() : end]
    raise AssertionError(f"{page.name} has no section {anchor}")


def test_there_are_thirty_questions() -> None:
    assert len(ANSWERS) >= 30


@pytest.mark.parametrize("question", ANSWERS)
def test_the_answer_is_two_clicks_from_the_readme(question: str) -> None:
    address, words = ANSWERS[question]
    name, _, anchor = address.partition("#")
    assert ROOT / name in reachable_from(README, clicks=2)
    assert words in section(ROOT / name, anchor)


def test_the_pages_with_these_answers_are_one_click_away() -> None:
    near = reachable_from(README, clicks=1)
    pages = {ROOT / address.partition("#")[0] for address, _ in ANSWERS.values()}
    assert pages <= near, "the table of the README is where a new user looks first"
