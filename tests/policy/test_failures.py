import pytest

from proxy.policy.failures import Category, category, transient_statuses
from proxy.policy.outcome import Kind
from proxy.policy.settings import Outcomes, RetrySettings, UpstreamSettings

LISTED = frozenset({429, 503})


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Kind.CONNECT, Category.TRANSIENT),
        (Kind.RESET, Category.TRANSIENT),
        (Kind.TIMEOUT, Category.TRANSIENT),
        (Kind.PROTOCOL, Category.PERMANENT),
        (Kind.CERTIFICATE, Category.PERMANENT),
        (Kind.BUSY, Category.PERMANENT),
        (Kind.TRUNCATED, Category.PERMANENT),
        (Kind.UNKNOWN, Category.PERMANENT),
        (Kind.CANCELLED, None),
        (200, None),
        (304, None),
        (399, None),
        (400, Category.PERMANENT),
        (404, Category.PERMANENT),
        (429, Category.TRANSIENT),
        (500, Category.PERMANENT),
        (503, Category.TRANSIENT),
    ],
)
def test_category(ending: Kind | int, expected: Category | None) -> None:
    assert category(ending, LISTED) is expected


def test_no_kind_is_forgotten() -> None:
    assert {kind for kind in Kind if category(kind, LISTED) is None} == {Kind.CANCELLED}


def test_a_route_may_list_what_others_call_a_success() -> None:
    assert category(202, frozenset({202})) is Category.TRANSIENT


class TestStatuses:
    upstream = UpstreamSettings("u", (), refused=frozenset({429}))

    def test_those_of_the_route_and_those_the_upstream_refuses_with(self) -> None:
        retry = RetrySettings(on=Outcomes(frozenset({"connect"}), frozenset({500})))
        assert transient_statuses(retry, self.upstream) == {429, 500}

    def test_without_retries_the_usual_ones(self) -> None:
        assert transient_statuses(None, self.upstream) == {408, 429, 502, 503, 504}

    def test_one_that_needs_a_hint_is_not_among_them(self) -> None:
        on = Outcomes(frozenset(), frozenset({500}), hinted=frozenset({403}))
        assert 403 not in transient_statuses(RetrySettings(on=on), self.upstream)
