"""What stands in a page: fenced blocks, tables and links."""

import re

_BLOCK = re.compile(r"^```(\w+)[^\n`]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def blocks(text: str, language: str) -> list[str]:
    """What the fenced blocks in *language* hold, whatever other words they have."""
    return [found[2] for found in _BLOCK.finditer(text) if found[1] == language]


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of each row of the first table below *heading*, code marks kept."""
    below = text.partition(f"\n{heading}\n")[2]
    lines = [line.strip() for line in below.splitlines()]
    start = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    found = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        found.append([cell.strip() for cell in cells])
    return found


def code(cell: str) -> list[str]:
    """What is marked as code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def links(text: str) -> list[str]:
    """Where the links lead to."""
    return _LINK.findall(text)


def anchors(text: str) -> set[str]:
    """What a link within the page can point to."""
    without_code = _BLOCK.sub("", text)
    headings = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {slug(heading) for heading in headings}


def slug(heading: str) -> str:
    """The anchor that code hosts, and the site, make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def as_pattern(shown: str) -> re.Pattern[str]:
    """*shown* output, in which a line ``…`` stands for any lines, none included."""
    lines = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line) + r"\n" for line in shown.split("\n")
    ]
    return re.compile("".join(lines))
