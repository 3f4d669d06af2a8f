import pytest

from proxy.cli.render.number_format import (
    long_duration,
    percentage,
    plural,
    short_count,
    short_duration,
)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0s"), (0.9, "0s"), (59, "59s"), (90, "1m 30s"), (3750, "1h 2m"), (266_400, "3d 2h")],
)
def test_span(seconds: float, said: str) -> None:
    assert long_duration(seconds) == said


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (0, "0.0ms"),
        (9.94, "9.9ms"),
        (9.96, "10ms"),
        (999.4, "999ms"),
        (999.6, "1.0s"),
        (99_900, "99.9s"),
        (99_990, "1m 39s"),
        (190_000, "3m 10s"),
    ],
)
def test_brief(milliseconds: float, said: str) -> None:
    assert short_duration(milliseconds) == said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0"), (99_999, "99999"), (123_456, "123k"), (3_210_000, "3.2M")]
)
def test_short(count: float, said: str) -> None:
    assert short_count(count) == said


def test_share() -> None:
    assert [percentage(1, 8), percentage(0, 3), percentage(0, 0)] == ["12.5%", "0.0%", "-"]


def test_several() -> None:
    assert [plural(count, "line") for count in (0, 1, 2)] == ["0 lines", "1 line", "2 lines"]
