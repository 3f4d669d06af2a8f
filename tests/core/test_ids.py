"""Ids that a process makes."""

from itertools import pairwise

from proxy.core.ids import new_dead_letter_id


def test_dead_letters_of_one_moment_sort_as_they_were_written() -> None:
    ids = [new_dead_letter_id(1_700_000_000.0) for _ in range(1000)]
    assert ids == sorted(set(ids))
    # How far it is to the next one cannot be guessed.
    steps = {int(later, 16) - int(earlier, 16) for earlier, later in pairwise(ids)}
    assert len(steps) > 900
