"""Settings as lines of YAML, each with a comment that says where it was written."""

import json
import re
from collections.abc import Iterable, Iterator

from proxy.config import Setting

_COLUMN = 40
"""The column at which comments begin, if the value is short enough."""
_LONGEST_TEXT = 40

# Matches text that needs no quotes in any position, and is read as a string.
_is_plain = re.compile(r"(?!.*: )[A-Za-z/][\w./:*+@~ -]*(?<![ :])").fullmatch
_YAML_KEYWORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def commented_yaml(settings: Iterable[Setting], width: int) -> Iterator[str]:
    """Yield a line for each setting; two where value and comment do not fit on one line."""
    for setting in settings:
        line = f"{'  ' * len(setting.keys)}{setting.keys[-1]}:"
        comment = setting.where
        if setting.writer and not setting.writer.startswith(("routes", "upstreams")):
            comment += f" ({setting.writer})"
        if not setting.is_section:
            line += f" {as_written(setting.value)}"
        elif not setting.value:
            line, comment = f"{line} false", f"off, {comment}"
        if len(line) < _COLUMN and _COLUMN + len(comment) + 2 <= width:
            yield f"{line:<{_COLUMN}}# {comment}"
        elif len(line) + len(comment) + 3 <= width:
            yield f"{line} # {comment}"
        else:
            yield from _folded(line, width)
            yield f"{'':{min(_COLUMN, max(width - len(comment) - 2, 0))}}# {comment}"


def as_written(value: object) -> str:
    """Return *value* as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(as_written, value))}]"
    if isinstance(value, str):
        text = value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
        is_word = _is_plain(text) is not None and text.lower() not in _YAML_KEYWORDS
        if is_word or _is_quantity(text):
            return text
        return json.dumps(
            text, ensure_ascii=not text.isprintable()
        )  # a terminal would obey control characters
    return json.dumps(value)


# Matches 10s, 1m30s, 64KiB and 100/s, which begin with a digit and are no numbers.
_is_quantity = re.compile(r"[0-9]+[A-Za-z/][0-9A-Za-z/]*").fullmatch


def _folded(line: str, width: int) -> Iterator[str]:
    """Yield *line*; fold it into several if it is a list that is too long for one."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    while len(line) > width and (cut := line.rfind(", ", 0, width)) > 0:
        yield line[: cut + 1]
        line = indent + line[cut + 2 :]
    yield line
