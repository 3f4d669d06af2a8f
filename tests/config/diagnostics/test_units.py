import pytest
from hypothesis import given, strategies as st

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.diagnostics.position import Position, Source
from proxy.config.diagnostics.units import format_duration, format_size, parse_size
from proxy.config.source.nodes import Scalar
from proxy.config.values.quantities import ByteRate, Duration, Size
from proxy.http.durations import parse_duration


def scalar(text: str) -> Scalar:
    return Scalar(text, Position(Source("test"), 1, 1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("1m30s", 90),
        ("1.5s", 1.5),
        ("0.1s", 0.1),
        ("72h", 259200),
        ("3d", 259200),
        ("0s", 0),
        ("1d1h1m1s1ms", 90061.001),
    ],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert Duration().read(scalar(text)) == seconds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("30", "30 has no unit, write 30s"),
        ("0.5", "0.5 has no unit, write 0.5s"),
        ("5min", '"min" is no unit of time, write 5m'),
        ("90sec", '"sec" is no unit of time, write 1m30s'),
        ("30S", '"S" is no unit of time, write 30s'),
        ("500us", '"us" is no unit of time, write 1ms'),
        ("2w", '"w" is no unit of time, write 14d'),
        ("5parsecs", '"parsecs" is no unit of time, write ms, s, m, h or d'),
        ("30 s", '"30 s" has a space in it, write 30s'),
        ("-5s", "-5s is negative, write 5s"),
        ("soon", '"soon" is no duration, write 30s (say)'),
        ("²s", '"²s" is no duration, write 30s (say)'),
        ("none", '"none" is no duration, write 30s (say)'),
        ("999d", "999d is longer than a year, write 365d or less"),
        ("1e3", "1e3 is no duration, write 30s (say)"),
        (".inf", ".inf is no duration, write 30s (say)"),
        ("9" * 5000, f"{'9' * 80}… is no duration, write 30s (say)"),
    ],
    ids=lambda text: text[:20],
)
def test_no_duration(text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Duration().read(scalar(text))
    assert str(caught.value) == complaint


def test_no_limit_where_there_may_be_none() -> None:
    assert Duration(none=True).read(scalar("none")) is None
    assert Size(none=True).read(scalar("none")) is None
    with pytest.raises(InvalidValue, match="or none for no limit"):
        Duration(none=True).read(scalar("forever"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512B", 512),
        ("64KiB", 65536),
        ("1MiB", 1048576),
        ("1GiB", 2**30),
        ("1.5KiB", 1536),
        ("0B", 0),
    ],
)
def test_a_size(text: str, size: int) -> None:
    assert Size().read(scalar(text)) == size


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1024", "1024 has no unit, write 1KiB"),
        ("1000", "1000 has no unit, write 1000B"),
        ("0", "0 has no unit, write 0B"),
        ("10MB", '"MB" is no unit of size, write 10MiB'),
        ("10m", '"m" is no unit of size, write 10MiB'),
        ("64kib", '"kib" is no unit of size, write 64KiB'),
        ("5 MiB", '"5 MiB" has a space in it, write 5MiB'),
        ("5bytes", '"bytes" is no unit of size, write 5B'),
        ("5stone", '"stone" is no unit of size, write B, KiB, MiB or GiB'),
        ("-1B", '"-1B" is no size, write 64KiB (say)'),
        ("2048TiB", "2048TiB is out of range, write 0B to 1TiB"),
    ],
)
def test_no_size(text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Size().read(scalar(text))
    assert str(caught.value) == complaint


@given(st.integers(0, 365 * 86400 * 1000))
def test_a_duration_that_was_written_is_read_again(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**40))
def test_a_size_that_was_written_is_read_again(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "rate", "written"),
    [
        ("500B/s", 500, "500B/s"),
        ("1KiB/s", 1024, "1KiB/s"),
        ("1.5KiB/s", 1536, "1536B/s"),
        ("1GiB/s", 1024**3, "1GiB/s"),
        ("none", None, "none"),
    ],
)
def test_a_byte_rate(text: str, rate: int | None, written: str) -> None:
    assert ByteRate().read(scalar(text)) == rate
    assert ByteRate().write(rate) == written


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("500", "500 has no unit, write 500B/s"),
        ("1024", "1024 has no unit, write 1KiB/s"),
        ("500/s", "500/s counts no bytes, write 500B/s"),
        ("500B", "500B has no time, write 500B/s"),
        ("500B/", "500B/ has no time, write 500B/s"),
        ("1KB/s", '"KB" is no unit of size, write 1KiB/s'),
        ("1kb/s", '"kb" is no unit of size, write 1KiB/s'),
        ("30KiB/m", "30KiB/m is not counted by the second, write 512B/s"),
        ("15KiB/30s", "15KiB/30s is not counted by the second, write 512B/s"),
        ("1B/m", "1B/m is not counted by the second, write 1B/s"),
        ("500B / s", '"500B / s" has a space in it, write 500B/s'),
        ("500B/sec", '"sec" is no time, write 500B/s'),
        ("500B/0s", '"0s" is no time, write 500B/s'),
        ("0B/s", "0B/s asks for nothing, write none for no limit"),
        ("2GiB/s", "2GiB/s is out of range, write at most 1GiB/s, or none for no limit"),
        ("-5B/s", '"-5B/s" is no byte rate, write 500B/s (say) or none for no limit'),
        ("500bps", '"500bps" is no byte rate, write 500B/s (say) or none for no limit'),
        ("fast", '"fast" is no byte rate, write 500B/s (say) or none for no limit'),
    ],
)
def test_no_byte_rate(text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        ByteRate().read(scalar(text))
    assert str(caught.value) == complaint
