"""What does not grow: memory with requests served, CPU with routes configured."""

from statistics import median
from time import process_time

import pytest

from proxy.policy.routing.match import RouteTable
from proxy.policy.settings import Match
from tests.bounds.weighing import MIB, cpu_seconds, light_upstream, load, report, resident
from tests.support import ProxyProcess, one_route, subprocess_proxy


@pytest.mark.timeout(60)
async def test_memory_does_not_grow_with_the_number_of_requests() -> None:
    async with light_upstream() as url, subprocess_proxy(one_route(url)) as proxy:
        await load(proxy, 5_000)
        before = resident(proxy)
        await load(proxy, 15_000)
        grown = resident(proxy) - before
        report("15,000 requests, grown by", grown)
        assert grown < 3 * MIB, f"{grown / MIB:.1f} MiB in 15,000 requests"


def _routes(url: str, count: int) -> str:
    routes = "".join(f"  - {{match: /service-{n}/*/items, upstream: u}}\n" for n in range(count))
    return f"upstreams: {{u: {url}}}\nroutes:\n{routes}"


def _table(count: int) -> RouteTable:
    return RouteTable(tuple(Match(paths=(f"/service-{n}/*/items",)) for n in range(count)))


def _time_to_find(table: RouteTable, route: int) -> float:
    path = f"/service-{route}/7/items"
    before = process_time()
    for _ in range(5000):
        assert table.find("GET", "a.example", path, ()) == route
    return process_time() - before


def test_a_route_is_found_as_fast_among_a_thousand_as_among_ten() -> None:
    few, many = _table(10), _table(1000)
    rounds = [(_time_to_find(few, 9), _time_to_find(many, 999)) for _ in range(9)]
    ratio = median(many for _, many in rounds) / median(few for few, _ in rounds)
    assert ratio < 1.3, f"{ratio:.2f} times the CPU"


async def _cost(proxy: ProxyProcess, route: int) -> float:
    before = cpu_seconds(proxy)
    await load(proxy, 800, target=f"/service-{route}/7/items")
    return cpu_seconds(proxy) - before


@pytest.mark.timeout(60)
async def test_a_thousand_routes_cost_no_more_than_ten() -> None:
    async with (
        light_upstream() as url,
        subprocess_proxy(_routes(url, 10)) as few,
        subprocess_proxy(_routes(url, 1000)) as many,
    ):
        # The last route of each; in turn, so that a busy machine hits both alike.
        rounds = [(await _cost(few, 9), await _cost(many, 999)) for _ in range(8)][1:]
    ratio = median(many for _, many in rounds) / median(few for few, _ in rounds)
    assert ratio < 1.3, f"{ratio:.2f} times the CPU"
