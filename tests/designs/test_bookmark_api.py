"""A bookmark API: what its file says. The walks over real sockets come with the stage itself."""

import pytest

from proxy.policy.settings import IdempotencySettings, Outcomes
from tests.designs.design import Design

DESIGN = Design("bookmark-api.yaml")


def test_a_bookmark_is_made_once() -> None:
    assert DESIGN.route("create").idempotency == IdempotencySettings(
        required=True, ttl=72 * 3600, mismatch_status=409
    )


def test_other_requests_need_no_key() -> None:
    assert DESIGN.route("rest").idempotency is None


@pytest.mark.parametrize("route", ["create", "rest"])
def test_what_is_retried(route: str) -> None:
    assert DESIGN.retry(route).on == Outcomes(
        frozenset({"connect", "reset", "timeout"}),
        frozenset({408, 429, *range(500, 600)} - {501, 505}),
    )


@pytest.mark.parametrize("route", ["create", "rest"])
def test_waits_double_from_a_second_and_vary_by_a_tenth(route: str) -> None:
    assert DESIGN.retry(route).attempts == 3
    assert DESIGN.waits(route, 2) == pytest.approx([1.0, 2.0])
    assert DESIGN.wait(route, 1, roll=0) == pytest.approx(0.9)
    assert DESIGN.wait(route, 2, roll=1 - 1e-9) == pytest.approx(2.2)
