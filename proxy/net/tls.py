"""TLS contexts: the one place that makes them, for listeners, upstreams and the shared store.

A context says which certificates to trust, and which one to show.
"""

import ssl
from collections.abc import Sequence

from proxy.policy.settings import ListenTls, UpstreamTls

_HTTP = ("http/1.1",)


def client_context(tls: UpstreamTls, protocols: Sequence[str] = _HTTP) -> ssl.SSLContext:
    """Make a context for connections to a server; read the files that *tls* names.

    *protocols* are offered to the server (ALPN); none means that the extension is not sent.
    """
    context = ssl.create_default_context(cafile=tls.ca)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def server_context(tls: ListenTls) -> ssl.SSLContext:
    """Make a context for a listener's connections; read the files that *tls* names."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(list(_HTTP))
    context.load_cert_chain(tls.cert, tls.key)
    return context
