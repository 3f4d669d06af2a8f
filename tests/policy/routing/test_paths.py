"""The vectors of ``path_handling``: from the target that came to the one that goes on."""

from typing import Any

import pytest

from proxy.http.refusal import Refusal
from proxy.http.target import rewrite_target, split_target
from proxy.policy.routing.match import RouteTable
from proxy.policy.settings import Match
from tests.vectors.load import cases, group

ROUTE = group("path_handling")["route"]
ROUTES = RouteTable((Match(paths=(f"{ROUTE['prefix']}/**",)),))


def sent_upstream(target: str) -> object:
    split = split_target("GET", target)
    if isinstance(split, Refusal):
        assert split.status == 400
        return "reject"
    path, path_and_query, _ = split
    if ROUTES.find("GET", "a.example", path, ()) < 0:
        return "no_match"
    return {
        "upstream_target": rewrite_target(path_and_query, ROUTE["prefix"], ROUTE["upstream_base"])
    }


@pytest.mark.parametrize("case", cases("path_handling"))
def test_path_handling(case: dict[str, Any]) -> None:
    assert sent_upstream(case["target"]) == case["expect"]
