"""The stages around the upstream call, and the order in which a request meets them.

A route's chain is built once, when the configuration is loaded, innermost stage
first. A route without policies gets the bare upstream call: no wrapper, no
buffering, no further await.
"""

from collections.abc import Callable

from proxy.core import Handler
from proxy.pipeline.deadlines import Deadlines
from proxy.pipeline.forward import Forward
from proxy.policy.settings import RouteSettings
from proxy.upstream.upstream import Upstream


def build(
    settings: RouteSettings, upstream: Upstream, deadlines: Callable[[float], Deadlines]
) -> Handler:
    """What a route does with a request."""
    timeout = settings.timeout
    return Forward(upstream, None if timeout is None else deadlines(timeout)).handle
