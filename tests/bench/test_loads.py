import pytest

from bench.loads.closed import least_share, parsed
from bench.loads.pacer import is_complete, percentile, schedule
from bench.loads.transfer import content_length
from bench.tools import BenchFailed

WRK = b"""Running 1m test @ http://127.0.0.1:18999/
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   162.81us  192.34us   2.93ms   97.97%

{"requests": 21144, "failed": 0, "microseconds": 501210, "p50": 150, "p99": 900}
"""


def test_wrk_is_read_from_its_last_line() -> None:
    assert parsed(WRK, at_most=1.0) == {
        "requests": 21144,
        "failed": 0,
        "microseconds": 501210,
        "p50": 150,
        "p99": 900,
    }


def test_wrk_that_says_nothing_has_failed() -> None:
    with pytest.raises(BenchFailed, match="without a word"):
        parsed(b"", at_most=1.0)


def test_wrk_that_ran_for_too_long_has_failed() -> None:
    with pytest.raises(BenchFailed, match="did not end when it was told to"):
        parsed(WRK, at_most=0.5)


@pytest.mark.parametrize(
    ("spent", "workers", "share"),
    [
        pytest.param([1.0, 1.0], 2, 0.5, id="even"),
        pytest.param([3.0, 1.0], 2, 0.25, id="uneven"),
        pytest.param([1.0, 1.0, 0.01], 2, 0.5, id="one that only helps is no worker"),
        pytest.param([1.0], 2, 0.0, id="one is missing"),
        pytest.param([0.0, 0.0], 2, 0.0, id="nobody did anything"),
    ],
)
def test_least_share(spent: list[float], workers: int, share: float) -> None:
    assert least_share(spent, workers) == share


@pytest.mark.parametrize(
    ("answer", "complete"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_end_of_an_answer(answer: bytes, *, complete: bool) -> None:
    assert is_complete(answer) is complete


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ([3000, 1000, 2000], 0.5, 2.0),
        (list(range(0, 100_000, 1000)), 0.99, 99.0),
        ([7000], 0.99, 7.0),
        ([], 0.5, 0.0),
    ],
)
def test_percentile_in_microseconds(values: list[int], part: float, expected: float) -> None:
    assert percentile(values, part) == expected


def test_requests_are_due_at_equal_distances() -> None:
    assert list(schedule(rate=1000, seconds=0.003, begin=5)) == [5, 1_000_005, 2_000_005]


def test_a_body_without_its_length_is_refused() -> None:
    assert content_length(b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH: 12") == 12
    with pytest.raises(BenchFailed, match="without its length"):
        content_length(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked")
