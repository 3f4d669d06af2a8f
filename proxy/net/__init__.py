"""Sockets below HTTP: listening, accepting, TLS contexts, and writes that are sent together.

May import the settings of ``policy/``; knows nothing of HTTP.
"""
