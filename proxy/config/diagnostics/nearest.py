"""Which known word was probably meant by one that is nearly right."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """The one of *known* that was probably meant; empty if none is near."""
    distance, name = min(((_distance(word, name), name) for name in known), default=(3, ""))
    # Two letters of three are another word, not a slip.
    return name if distance <= 2 and 2 * distance < max(len(word), len(name)) else ""


def _distance(one: str, other: str) -> int:
    """How many letters differ: put in, left out, replaced or swapped; 3 means many."""
    if abs(len(one) - len(other)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return min(row[-1], 3)
