"""Holdfast with something to hold on to: a flaky upstream, and the proxy in front of it.

``python -m proxy.demo`` serves the upstream alone; with ``--with-proxy FILE`` it
starts the proxy too and stops both together, which is what ``make demo`` does.
Nothing else in the package imports this, and it imports nothing else of ours:
the proxy is started as a user would start it.
"""
