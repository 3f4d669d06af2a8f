"""Room for deliveries: all of it, a caller's share beside others, and alone."""

import pytest

from proxy.policy.delivery.capacity import CapacityCause, CapacityUse, lacking

MOST = CapacityUse(80, 8000)


@pytest.mark.parametrize(
    ("used", "own", "asked", "cause"),
    [
        (CapacityUse(), CapacityUse(), CapacityUse(1, 100), None),
        (CapacityUse(80, 80), CapacityUse(), CapacityUse(1, 1), CapacityCause.ENTRIES),
        (CapacityUse(79, 80), CapacityUse(), CapacityUse(1, 1), None),
        (CapacityUse(1, 7990), CapacityUse(), CapacityUse(1, 11), CapacityCause.BYTES),
        (CapacityUse(1, 7990), CapacityUse(), CapacityUse(1, 10), None),
        # A quarter beside others.
        (CapacityUse(20, 200), CapacityUse(19, 190), CapacityUse(1, 1), None),
        (CapacityUse(21, 200), CapacityUse(20, 190), CapacityUse(1, 1), CapacityCause.CALLER),
        (CapacityUse(2, 2000), CapacityUse(1, 1990), CapacityUse(1, 11), CapacityCause.CALLER),
        (CapacityUse(2, 2000), CapacityUse(1, 1990), CapacityUse(1, 10), None),
        # All but an eighth alone.
        (CapacityUse(69, 690), CapacityUse(69, 690), CapacityUse(1, 1), None),
        (CapacityUse(70, 700), CapacityUse(70, 700), CapacityUse(1, 1), CapacityCause.CALLER),
        (CapacityUse(1, 6000), CapacityUse(1, 6000), CapacityUse(1, 1001), CapacityCause.CALLER),
        # A body that grows asks for bytes alone.
        (CapacityUse(21, 200), CapacityUse(20, 190), CapacityUse(0, 10), None),
    ],
)
def test_what_is_lacking(
    used: CapacityUse, own: CapacityUse, asked: CapacityUse, cause: CapacityCause | None
) -> None:
    assert lacking(asked, used, own, MOST) is cause


def test_a_share_is_one_entry_at_least() -> None:
    assert lacking(CapacityUse(1, 1), CapacityUse(1, 1), CapacityUse(), CapacityUse(3, 100)) is None
