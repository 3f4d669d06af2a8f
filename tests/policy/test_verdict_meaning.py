import pytest

from proxy.policy.reasons import VerdictReason
from proxy.policy.verdict_meaning import MEANINGS, verdict_meaning

REFUSED = frozenset({429})


def test_every_reason_has_its_sentence() -> None:
    assert MEANINGS.keys() == set(VerdictReason)
    assert len(set(MEANINGS.values())) == len(MEANINGS)
    assert all(text and text[-1] not in ".:;," for text in MEANINGS.values())


@pytest.mark.parametrize(
    ("status", "key_lost", "told"),
    [
        (0, False, "it may have run, and may not run twice"),
        (503, False, "it may have run, and may not run twice"),
        (429, False, "unsafe: never repeats it only if nothing of it was sent"),
        (408, False, "after a 408 only what may run twice is repeated"),
        (503, True, "another request may have its key by now"),
    ],
)
def test_what_is_not_repeatable(status: int, key_lost: bool, told: str) -> None:  # noqa: FBT001 - a parameter of the table
    found = verdict_meaning(VerdictReason.NOT_REPEATABLE, status, REFUSED, key_lost=key_lost)
    assert found == told
