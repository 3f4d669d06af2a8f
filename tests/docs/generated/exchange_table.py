"""The table of the exchange's attributes, as docs/architecture.md shows it."""

import re

from proxy.core.exchange import Exchange

_BLOCK = re.compile(r"(<!-- exchange -->\n).*?(<!-- end of exchange -->)", re.DOTALL)
_ROW = re.compile(r"(?P<name>\S.*?) {2,}(?P<writer>\S.*?) {2,}(?P<when>\S.*)")


def table_rows() -> list[tuple[str, str, str]]:
    """The rows of the table that the docstring of the class has: attributes, writers, when."""
    lines = (Exchange.__doc__ or "").splitlines()
    rules = [number for number, line in enumerate(lines) if line.strip().startswith("====")]
    rows = [_ROW.fullmatch(line.strip()) for line in lines[rules[1] + 1 : rules[2]]]
    return [(row["name"], row["writer"], row["when"]) for row in rows if row is not None]


def with_exchange_table(text: str) -> str:
    """*text* with the table that the docstring of the class has."""
    table = "".join(
        f"| {_code(names)} | {_words(writers)} | {_words(when)} |\n"
        for names, writers, when in table_rows()
    )
    head = "| attribute | who writes it | when |\n|---|---|---|\n"
    return _BLOCK.sub(lambda block: block[1] + head + table + block[2], text)


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _words(text: str) -> str:
    """Restructured text as Markdown."""
    return re.sub(r":meth:`(\w+)`", r"`\1()`", text).replace("``", "`")
