"""Room for deliveries: all of it, a caller's share beside others, and alone."""

import pytest

from proxy.policy.delivery.room import RoomCause, RoomUse, lacking

MOST = RoomUse(80, 8000)


@pytest.mark.parametrize(
    ("used", "own", "asked", "cause"),
    [
        (RoomUse(), RoomUse(), RoomUse(1, 100), None),
        (RoomUse(80, 80), RoomUse(), RoomUse(1, 1), RoomCause.ENTRIES),
        (RoomUse(79, 80), RoomUse(), RoomUse(1, 1), None),
        (RoomUse(1, 7990), RoomUse(), RoomUse(1, 11), RoomCause.BYTES),
        (RoomUse(1, 7990), RoomUse(), RoomUse(1, 10), None),
        # A quarter beside others.
        (RoomUse(20, 200), RoomUse(19, 190), RoomUse(1, 1), None),
        (RoomUse(21, 200), RoomUse(20, 190), RoomUse(1, 1), RoomCause.CALLER),
        (RoomUse(2, 2000), RoomUse(1, 1990), RoomUse(1, 11), RoomCause.CALLER),
        (RoomUse(2, 2000), RoomUse(1, 1990), RoomUse(1, 10), None),
        # All but an eighth alone.
        (RoomUse(69, 690), RoomUse(69, 690), RoomUse(1, 1), None),
        (RoomUse(70, 700), RoomUse(70, 700), RoomUse(1, 1), RoomCause.CALLER),
        (RoomUse(1, 6000), RoomUse(1, 6000), RoomUse(1, 1001), RoomCause.CALLER),
        # A body that grows asks for bytes alone.
        (RoomUse(21, 200), RoomUse(20, 190), RoomUse(0, 10), None),
    ],
)
def test_what_is_lacking(
    used: RoomUse, own: RoomUse, asked: RoomUse, cause: RoomCause | None
) -> None:
    assert lacking(asked, used, own, MOST) is cause


def test_a_share_is_one_entry_at_least() -> None:
    assert lacking(RoomUse(1, 1), RoomUse(1, 1), RoomUse(), RoomUse(3, 100)) is None
