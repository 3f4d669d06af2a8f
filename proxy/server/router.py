"""The routes that are being served: one immutable value, swapped whole by a reload."""

from collections.abc import Sequence

from proxy.core.exchange import Exchange
from proxy.core.route import Handler, Recorder, Route
from proxy.http.fields import RawHeaders
from proxy.http.refusal import Refusal, RefusalReason
from proxy.policy.caller_fields import hop_for
from proxy.policy.routing.match import RouteTable
from proxy.policy.settings import Match, RouteSettings, Settings
from proxy.server.aiohttp_adapter.server import LARGEST_READ
from proxy.server.body.memory_budget import LARGE_HEAD

_NO_ROUTE = Refusal(RefusalReason.NO_ROUTE, "No route of this proxy matches the request.")
_UNMATCHED = RouteSettings(name="_unmatched", match=Match(), upstream="")


class Router:
    """The routes of one configuration, ready to serve."""

    def __init__(
        self,
        settings: Settings,
        routes: Sequence[Route],
        unmatched: Recorder,
        deliveries: Handler | None = None,
    ) -> None:
        """*deliveries* answers at the path at which clients ask for them, before all routes."""
        self.settings = settings
        self.hop = hop_for(settings)
        """What this proxy calls itself towards clients and upstreams."""
        self.usual_head = min(LARGE_HEAD, settings.limits.header_bytes)
        """Bytes of a head beyond which its size is checked and counted."""
        self.most_ahead = settings.limits.header_bytes + LARGEST_READ
        """Most bytes to parse behind a request that is being served, if no head is complete."""
        if deliveries is not None and settings.deliveries.status is not None:
            match = Match(paths=(f"{settings.deliveries.status}/**",))
            own = RouteSettings(name="_deliveries", match=match, upstream="")
            routes = (Route(own, deliveries, unmatched), *routes)
        self._routes = tuple(routes)
        self._table = RouteTable(tuple(route.settings.match for route in routes))
        self.unmatched = Route(_UNMATCHED, _no_route, unmatched)
        """The route of requests that no route takes, or that could not be read."""
        self.itself = Route(_UNMATCHED, _answer_options, unmatched)
        """The route of requests that mean this proxy and no upstream (``OPTIONS *``)."""

    def named(self, name: str) -> Route | None:
        """Return the route of that name; None if there is none."""
        return next((route for route in self._routes if route.settings.name == name), None)

    def find(self, method: str, host: str, path: str, raw_headers: RawHeaders) -> Route:
        """Return the first route that takes the request."""
        index = self._table.find(method, host, path, raw_headers)
        return self._routes[index] if index >= 0 else self.unmatched


async def _no_route(_exchange: Exchange) -> Refusal:
    return _NO_ROUTE


async def _answer_options(exchange: Exchange) -> None:
    exchange.answer_options()
