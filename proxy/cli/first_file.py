"""The text of a first configuration file: what ``holdfast init`` writes, made of a few answers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

_HEAD = """\
# yaml-language-server: $schema=./schema.json
#
# Written by holdfast init. After a change: holdfast check FILE, then holdfast reload.
# The line above is for your editor, which then knows every key: holdfast schema > schema.json

listen: 127.0.0.1:8080        # where your service sends its requests
admin: 127.0.0.1:9901         # for holdfast status, probes and Prometheus
"""

_STORE = """\
store: sqlite:keys.db         # idempotency keys, in a file; for several instances redis://HOST:6379
"""

_RETRY = """\
    retry:                    # of what failed and is safe to send again; no POST that may have run
      attempts: 3             # the first one included
"""
_RETRY_WITH_KEYS = """\
    retry:                    # of what failed and is safe to send again, a POST with a key included
      attempts: 3             # the first one included
"""
_NO_RETRY = """\
    # retry: true             # sends again what failed and is safe to send again
"""

_HONOURS_KEY = """\
    honours_key: true         # it runs a POST with the same key once, so one that failed is retried
"""
_IDEMPOTENCY = """\
    idempotency:              # a POST with an Idempotency-Key runs once, duplicates get its result
      required: false         # true: a POST without a key gets 400
      on_ambiguous: hold      # it may have run: 409 until you release it (holdfast keys list)
"""
_KEEP_503 = """\
      # A 503 may have run as well, so duplicates get it again. If it says that nothing was done,
      # write refused: [421, 425, 429, 503] in the upstream and remove this line:
      keep: [2xx, 3xx, 4xx, 503]
"""
_DEAD_LETTER = """\
    dead_letter:              # what failed for good is kept (holdfast dlq list)
      on: [default, 5xx]      # each failure after which it may have run, too
"""
_NO_IDEMPOTENCY = """\
    # idempotency: true       # a POST with an Idempotency-Key runs once, duplicates get its result
    # dead_letter: true       # requests that failed for good are kept (holdfast dlq list)
"""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a first file depends on."""

    upstream: str
    """The URL."""
    retry: bool = True
    idempotency: bool = False
    honours_key: bool = False
    """Whether the upstream itself runs a request with the same key once."""
    rate: str | None = None
    """Such as ``100/s``; None: no limit."""


def first_file(answers: Answers) -> str:
    """Return the text of the file."""
    return "".join(_parts(answers))


def _parts(answers: Answers) -> Iterator[str]:
    yield _HEAD
    if answers.idempotency:
        yield _STORE
    # In quotes, and a dollar sign doubled, so that it is read as it was typed.
    url = json.dumps(answers.upstream.replace("$", "$$"), ensure_ascii=False)
    yield f"\nupstreams:\n  api:\n    urls: [{url}]\n"
    if answers.idempotency and answers.honours_key:
        yield _HONOURS_KEY
    if answers.rate is None:
        yield "    # throttle: 100/s         # callers wait for their turn instead of a 429\n"
    else:
        throttle = f"    throttle: {answers.rate}"
        yield f"{throttle:<29} # callers wait for their turn instead of a 429\n"
    yield """
routes:                       # the first one that matches
  - name: api
    match: /**
    upstream: api
    timeout: 30s              # for all attempts and waits together
"""
    if answers.retry:
        yield _RETRY_WITH_KEYS if answers.idempotency and answers.honours_key else _RETRY
    else:
        yield _NO_RETRY
    if not answers.idempotency:
        yield _NO_IDEMPOTENCY
        return
    yield _IDEMPOTENCY
    if not answers.honours_key:
        yield _KEEP_503
    yield _DEAD_LETTER
