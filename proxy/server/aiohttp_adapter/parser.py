"""Which of aiohttp's request parsers is in use."""

from aiohttp.http_parser import HttpRequestParser


def parser_name() -> str:
    """``c`` for the compiled one, ``python`` for the fallback, which must not serve."""
    return "c" if HttpRequestParser.__module__.endswith("_http_parser") else "python"
