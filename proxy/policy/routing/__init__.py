"""Route matching: which route takes a request, and the index of path patterns.

Imports ``policy/settings`` and ``http/fields`` and nothing else of ours.
"""
