import pytest

from proxy.policy.retry.rate_limit_fields import AdvertisedQuota, longest_wait, parse_rate_limit


@pytest.mark.parametrize(
    ("text", "quotas"),
    [
        pytest.param('"a";r=0;t=5', [AdvertisedQuota(exhausted=True, wait=5)], id="nothing left"),
        pytest.param(
            '"a";r=9;t=5', [AdvertisedQuota(exhausted=False, wait=5)], id="something left"
        ),
        pytest.param(
            '"a";r=0', [AdvertisedQuota(exhausted=True, wait=None)], id="no word about when"
        ),
        pytest.param(
            '"a"; r=0;  t=5', [AdvertisedQuota(exhausted=True, wait=5)], id="blanks before a key"
        ),
        pytest.param(
            '"a";r=3;r=0;t=5', [AdvertisedQuota(exhausted=True, wait=5)], id="the last of two rules"
        ),
        pytest.param(
            '"a";r=0;t=5 ,\t"b";r=1;t=6',
            [AdvertisedQuota(exhausted=True, wait=5), AdvertisedQuota(exhausted=False, wait=6)],
            id="two quotas",
        ),
        pytest.param(
            '"a, \\"b\\";t=9";r=0;t=5;pk=:QQ==:;x="y,z";flag',
            [AdvertisedQuota(exhausted=True, wait=5)],
            id="commas and quotes in strings",
        ),
        pytest.param(
            "limit=10, remaining=0, reset=7",
            [AdvertisedQuota(exhausted=True, wait=7)],
            id="draft 07",
        ),
        pytest.param(
            "limit=10, remaining=1, reset=7",
            [AdvertisedQuota(exhausted=False, wait=7)],
            id="some left",
        ),
        pytest.param("limit=10, reset=7", [AdvertisedQuota(exhausted=True, wait=7)], id="no count"),
        pytest.param(
            "limit=10;w=60, remaining=0, reset=7",
            [AdvertisedQuota(exhausted=True, wait=7)],
            id="draft 07 with a parameter",
        ),
        pytest.param("", [], id="nothing"),
        pytest.param("a;r=0;t=5", [], id="a token for a name"),
        pytest.param('"a";r=0;t=5,', [], id="a comma at the end"),
        pytest.param('"a";r=0;t=5 "b";r=0;t=5', [], id="no comma between"),
        pytest.param('"a";r=0;t=5, "b";t=5', [], id="one bad item spoils the field"),
        pytest.param('"a;r=0;t=5', [], id="a string without an end"),
        pytest.param('"a";r;t=5', [], id="a count without a number"),
        pytest.param('"a";r=-1;t=5', [], id="a negative count"),
        pytest.param('"a";r=0;t=-5', [], id="a negative time"),
        pytest.param('"a";r=0;t=1.5', [], id="a fraction of a second"),
        pytest.param('"a";r=0;t="5"', [], id="a number in quotes"),
        pytest.param('"a";r=0;t=' + "9" * 16, [], id="more digits than an Integer has"),
        pytest.param("limit=10, remaining=0", [], id="draft 07 without a reset"),
        pytest.param("limit=10, remaining=x, reset=7", [], id="draft 07 with a word for a count"),
    ],
)
def test_parse(text: str, quotas: list[AdvertisedQuota]) -> None:
    assert parse_rate_limit(text) == quotas


USED_UP, UNKNOWN = (
    AdvertisedQuota(exhausted=True, wait=5),
    AdvertisedQuota(exhausted=True, wait=None),
)
LEFT = AdvertisedQuota(exhausted=False, wait=60)


@pytest.mark.parametrize(
    ("quotas", "otherwise", "after_429"),
    [
        pytest.param([], None, None, id="none at all"),
        pytest.param([USED_UP, LEFT], 5, 5, id="only what is used up counts"),
        pytest.param([LEFT], None, 60, id="a 429 makes all of them count"),
        pytest.param([UNKNOWN, LEFT], None, None, id="used up, and nobody knows until when"),
        pytest.param([UNKNOWN, USED_UP], 5, 5, id="of two used up, one knows"),
    ],
)
def test_longest_wait(
    quotas: list[AdvertisedQuota], otherwise: float | None, after_429: float | None
) -> None:
    assert longest_wait(quotas, is_429=False) == otherwise
    assert longest_wait(quotas, is_429=True) == after_429
