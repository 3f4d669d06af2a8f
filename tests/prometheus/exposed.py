"""What a proxy really exposes, and what a query asks for."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from textwrap import dedent

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

from tests.support import RunningProxy, ScriptedUpstream, hang_up, running
from tests.support.keys import new_key, post
from tests.support.redis_server import redis_server
from tests.support.waiting import eventually

OF_PROMETHEUS = {"job", "instance"}
"""Labels that a scrape adds to everything."""

EVERYTHING = """
    store: redis://127.0.0.1:{redis}
    upstreams:
      main:
        urls: ['{main}']
        breaker: true
        throttle: 1000/s
      other: '{other}'
      down: http://127.0.0.1:9
    routes:
      - name: later
        match: /later
        upstream: down
        dead_letter: true
        hand_off: true
      - name: all
        match: /**
        upstream: main
        retry: true
        throttle: 1000/s
        idempotency: true
        fallback: {{upstream: other}}
        dead_letter: true
"""
"""Every policy is on."""


async def scrape() -> str:
    """``/metrics`` of a proxy with every policy on, after some requests."""
    async with redis_server() as redis, ScriptedUpstream() as main, ScriptedUpstream() as other:
        config = EVERYTHING.format(redis=redis.port, main=main.url, other=other.url)
        async with running(dedent(config)) as proxy:
            await use(proxy, main)
            return (await proxy.admin("GET", "/metrics")).body.decode()


async def use(proxy: RunningProxy, main: ScriptedUpstream) -> None:
    await proxy.get("/")
    await post(proxy)
    main.script(hang_up)  # it may have run, so there is a dead letter
    await post(proxy, new_key())
    async with proxy.client() as client:  # a delivery that is not done, because nobody is there
        assert (await client.request("POST", "/later", "Prefer: respond-async")).status == 202
    await eventually(lambda: proxy.app._dead_letters.counts, what="counting")
    await eventually(lambda: proxy.app._deliveries.counts, what="counting")


def labels_by_name(exposed: str) -> dict[str, set[str]]:
    """The labels of all metrics, under the names that queries use."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exposed):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """A metric in a query, and the labels that the query expects of it."""

    name: str
    labels: frozenset[str]


def asked(query: str) -> Iterator[Asked]:
    """All metrics of a query."""
    return _within(_parsed(query), frozenset())


@cache
def _parsed(query: str) -> promql.Expr:
    return promql.parse(query)


def _within(expr: promql.Expr, grouped: frozenset[str]) -> Iterator[Asked]:
    """*grouped* are the labels by which what *expr* gives is put together."""
    match expr:
        case promql.VectorSelector():
            matched = {matcher.name for matcher in expr.matchers.matchers}
            yield Asked(expr.name or "", grouped | matched)
        case promql.MatrixSelector():
            yield from _within(expr.vector_selector, grouped)
        case promql.AggregateExpr():
            by = expr.modifier.labels if expr.modifier else []
            yield from _within(expr.expr, frozenset(by))
        case promql.Call():
            for argument in expr.args:
                yield from _within(argument, grouped)
        case promql.BinaryExpr():
            yield from _within(expr.lhs, grouped)
            yield from _within(expr.rhs, grouped)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from _within(expr.expr, grouped)
        case promql.NumberLiteral() | promql.StringLiteral():
            pass
        case _:
            raise AssertionError(f"{type(expr)} is not known here")


def unknown(query: str, known: dict[str, set[str]]) -> list[str]:
    """What *query* asks for that is not there: metrics, and labels of metrics."""
    found = []
    for one in asked(query):
        if one.name not in known:
            found.append(one.name)
        else:
            missing = one.labels - known[one.name] - OF_PROMETHEUS
            found += [f"{one.name}{{{label}}}" for label in sorted(missing)]
    return found
