import pytest

from proxy.policy.attempt import FailureKind
from proxy.policy.failure_category import FailureCategory, category, transient_statuses
from proxy.policy.settings import Origin, Outcomes, RetrySettings, UpstreamSettings

LISTED = frozenset({429, 503})


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (FailureKind.CONNECT, FailureCategory.TRANSIENT),
        (FailureKind.RESET, FailureCategory.TRANSIENT),
        (FailureKind.TIMEOUT, FailureCategory.TRANSIENT),
        (FailureKind.PROTOCOL, FailureCategory.PERMANENT),
        (FailureKind.CERTIFICATE, FailureCategory.PERMANENT),
        (FailureKind.BUSY, FailureCategory.PERMANENT),
        (FailureKind.TRUNCATED, FailureCategory.PERMANENT),
        (FailureKind.UNKNOWN, FailureCategory.PERMANENT),
        (FailureKind.CANCELLED, None),
        (200, None),
        (304, None),
        (399, None),
        (400, FailureCategory.PERMANENT),
        (404, FailureCategory.PERMANENT),
        (429, FailureCategory.TRANSIENT),
        (500, FailureCategory.PERMANENT),
        (503, FailureCategory.TRANSIENT),
    ],
)
def test_category(ending: FailureKind | int, expected: FailureCategory | None) -> None:
    assert category(ending, LISTED) is expected


def test_no_kind_is_forgotten() -> None:
    assert {kind for kind in FailureKind if category(kind, LISTED) is None} == {
        FailureKind.CANCELLED
    }


def test_a_route_may_list_what_others_call_a_success() -> None:
    assert category(202, frozenset({202})) is FailureCategory.TRANSIENT


class TestStatuses:
    upstream = UpstreamSettings("u", (Origin("http", "u", 80),), refused=frozenset({429}))

    def test_those_of_the_route_and_those_the_upstream_refuses_with(self) -> None:
        retry = RetrySettings(on=Outcomes(frozenset({"connect"}), frozenset({500})))
        assert transient_statuses(retry, self.upstream) == {429, 500}

    def test_without_retries_the_usual_ones(self) -> None:
        assert transient_statuses(None, self.upstream) == {408, 429, 502, 503, 504}

    def test_one_that_needs_a_hint_is_not_among_them(self) -> None:
        on = Outcomes(frozenset(), frozenset({500}), hinted=frozenset({403}))
        assert 403 not in transient_statuses(RetrySettings(on=on), self.upstream)
