"""What commands say of many entries: how many of each, and of which routes there could be some."""

import http.client
from collections import Counter
from collections.abc import Mapping

from proxy.cli.admin_client import AdminClient
from proxy.cli.untrusted_json import UntrustedJson

_MAX_CONFIG = 64 * 1024 * 1024
_NAMED = 5
"""The number of routes or callers that a message names; there may be very many."""


def counted(counts: Counter[str]) -> str:
    """Format counts, the most frequent name first."""
    named = [f"{name}: {count}" for name, count in counts.most_common(_NAMED)]
    others = len(counts) - len(named)
    return ", ".join([*named, *([f"and {others} more"] if others else [])])


def routes_in_force(client: AdminClient) -> Mapping[str, UntrustedJson]:
    """Return the routes of the configuration in force by name; none if it is not told."""
    listed = client.send("GET", "/config", max_bytes=_MAX_CONFIG)
    if listed.status != http.client.OK:
        return {}
    return {each.raw_text("name") or "": each for each in listed.parts("routes")}
