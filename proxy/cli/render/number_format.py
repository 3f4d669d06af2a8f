"""Number formats for people: short, and no more exact than is useful."""


def long_duration(seconds: float) -> str:
    """Format seconds in two units: ``23h 58m``."""
    left = max(int(seconds), 0)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"


def short_duration(milliseconds: float) -> str:
    """Format milliseconds: ``0.4ms``, ``85ms``, ``1.2s``, ``3m 10s``."""
    if milliseconds < 9.95:
        return f"{milliseconds:.1f}ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f}ms"
    seconds = milliseconds / 1000
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    return long_duration(seconds)


def short_count(count: float) -> str:
    """Format a count: ``99999``, ``100k``, ``3.2M``."""
    if count < 100_000:
        return f"{count:.0f}"
    if count < 1_000_000:
        return f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def short_rate(per_second: float) -> str:
    """Format a number of events per second: ``0``, ``0.02``, ``12.5``, ``3200``."""
    if not per_second:
        return "0"
    if per_second < 0.095:
        return f"{max(per_second, 0.01):.2f}"
    return f"{per_second:.1f}" if per_second < 99.95 else short_count(per_second)


def percentage(part: float, whole: float) -> str:
    """Format a share: ``12.5%``; a dash if *whole* is 0."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def plural(count: float, noun: str) -> str:
    """Format a count with its noun: ``1 attempt``, ``3 attempts``."""
    return f"{short_count(count)} {noun}{'' if count == 1 else 's'}"
