"""The demo: a flaky upstream, and the proxy in front of it.

``python -m proxy.demo`` serves the upstream alone; with ``--with-proxy FILE`` it
starts the proxy too and stops both together, which is what ``make demo`` does.
No other package imports this one, and it imports no other: the proxy is started as a user
would start it.
"""
