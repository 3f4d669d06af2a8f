"""Which of aiohttp's request parsers is in use."""

from aiohttp.http_parser import HttpRequestParser


def parser_name() -> str:
    """Return ``c`` for the compiled parser, ``python`` for the fallback, which must not serve."""
    return "c" if HttpRequestParser.__module__.endswith("_http_parser") else "python"
