"""TLS contexts for connections that the proxy opens: whom it trusts, and its own certificate."""

import ssl

from proxy.policy.settings import UpstreamTls


def client_context(tls: UpstreamTls) -> ssl.SSLContext:
    """Make the context for connections to an upstream; reads the files that *tls* names."""
    context = ssl.create_default_context(cafile=tls.ca)
    context.set_alpn_protocols(["http/1.1"])
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
