"""Small files with a place to write in, and a row of a table of messages."""

from typing import Any

import pytest

TOP = """\
upstreams: {{payments: "http://127.0.0.1:9000"}}
{}
routes:
  - name: api
    match: /**
    upstream: payments
"""
ROUTE = """\
upstreams: {{payments: "http://127.0.0.1:9000"}}
routes:
  - name: api
    match: /**
    upstream: payments
    {}
"""
MATCH = """\
upstreams: {{payments: "http://127.0.0.1:9000"}}
routes:
  - name: api
    match: {}
    upstream: payments
"""
UPSTREAM = """\
upstreams:
  api: {}
routes:
  - match: /**
    upstream: api
"""
LAYERS = """\
upstreams: {{payments: "http://127.0.0.1:9000"}}
defaults: {{{}}}
policies: {{patient: {{{}}}}}
routes:
  - name: api
    match: /**
    upstream: payments
    policy: patient
    {}
"""


def in_file(identifier: str, text: str, expected: str) -> Any:  # noqa: ANN401 - of pytest's own
    """Return a row: a wrong file, with » before the position to report, and its message."""
    return pytest.param(text, expected, id=identifier)
