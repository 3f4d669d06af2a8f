"""Envoy: the peer that the bars are set by."""

import re
import subprocess
from collections.abc import Callable
from typing import Any

import yaml

from bench import tools
from bench.proxies.holdfast import LAST_ROUTE
from bench.proxies.place import ATTEMPTS, PLENTY, Command, Place, Proxy

_TYPE = "type.googleapis.com/envoy.extensions."


def version() -> str:
    """For example ``1.40.0``."""
    output = subprocess.run([tools.envoy(), "--version"], capture_output=True, check=True).stdout
    found = re.search(rb"/(\d+\.\d+\.\d+)/", output)
    return found[1].decode() if found else "unknown"


class _Config:
    """Envoy's file as plain data, and the places in it where something is added."""

    def __init__(self, place: Place) -> None:
        self._path = place.render("envoy.yaml")
        self._content: dict[str, Any] = yaml.safe_load(self._path.read_text())
        resources = self._content["static_resources"]
        (filters,) = resources["listeners"][0]["filter_chains"][0]["filters"]
        self.manager: dict[str, Any] = filters["typed_config"]
        (self.host,) = self.manager["route_config"]["virtual_hosts"]
        (self.cluster,) = resources["clusters"]

    def command(self) -> Command:
        self._path.write_text(yaml.safe_dump(self._content))
        quiet = ("--log-level", "error", "--disable-hot-restart")
        return [tools.envoy(), "-c", str(self._path), "--concurrency", "1", *quiet], {}


def _bare(place: Place) -> Command:
    return _Config(place).command()


def _with(*additions: Callable[[_Config, Place], None]) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        config = _Config(place)
        for add in additions:
            add(config, place)
        return config.command()

    return command


def _policies(config: _Config, _place: Place) -> None:
    """A retry policy and a local rate limit."""
    for route in config.host["routes"]:
        route["route"]["retry_policy"] = {
            "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
            "retriable_status_codes": [502, 503, 504],
            "num_retries": ATTEMPTS - 1,
            "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.010s"},
        }
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    limit = {
        "@type": f"{_TYPE}filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limit",
        "token_bucket": {
            "max_tokens": PLENTY,
            "tokens_per_fill": PLENTY,
            "fill_interval": "1s",
        },
        "filter_enabled": always,
        "filter_enforced": always,
    }
    name = "envoy.filters.http.local_ratelimit"
    config.manager["http_filters"].insert(0, {"name": name, "typed_config": limit})


def _tls(config: _Config, place: Place) -> None:
    """An upstream over TLS whose certificate and name are checked, as Holdfast does."""
    name = {"san_type": "IP_ADDRESS", "matcher": {"exact": "127.0.0.1"}}
    trust = {
        "trusted_ca": {"filename": str(place.stage.ca)},
        "match_typed_subject_alt_names": [name],
    }
    config.cluster["transport_socket"] = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{_TYPE}transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {"validation_context": trust},
        },
    }


def _thousand_routes(config: _Config, _place: Place) -> None:
    """999 that do not match before the one that does."""
    (last,) = config.host["routes"]
    names = [*(f"/service-{number}/" for number in range(999)), "/service-last/"]
    config.host["routes"] = [{**last, "match": {"prefix": name}} for name in names]


PROXIES = (
    Proxy("envoy", _bare),
    Proxy("envoy-policies", _with(_policies)),
    Proxy("envoy-tls", _with(_policies, _tls)),
    Proxy("envoy-1000-routes", _with(_thousand_routes, _policies), path=LAST_ROUTE),
)
