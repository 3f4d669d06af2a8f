"""Spelling suggestions: the known word nearest to an unknown one."""

from collections.abc import Iterable, Mapping


def meant(word: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """Return the member of a closed set that *word* probably stands for; empty if none is near.

    *synonyms* are the words of other products, each with one or more of *known* to write for it. A
    word that is nearly one of those stands for the same.
    """
    ours = {name.lower(): name for name in known}
    theirs = {} if synonyms is None else synonyms
    folded = word.lower()
    exact = theirs.get(word) or ours.get(folded) or theirs.get(folded)
    if exact or any(map(str.isdigit, word)):  # 500-504 is not meant as 500-599
        return exact or ""
    near = nearest(folded, ours) or nearest(folded, theirs)
    return ours.get(near) or theirs.get(near, "")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the word of *known* that *word* probably stands for; empty if none is near."""
    distance, name = min(((_distance(word, name), name) for name in known), default=(3, ""))
    # A word of three letters that differs in two is another word, not a typing error.
    return name if distance <= 2 and 2 * distance < max(len(word), len(name)) else ""


def _distance(one: str, other: str) -> int:
    """Return the edit distance (inserted, missing, replaced or swapped letters); 3 means many."""
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
