"""Every private hook of aiohttp, each pinned by a contract test."""
