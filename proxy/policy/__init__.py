"""Decisions as plain functions of plain values.

Nothing in this package reads a clock, draws a random number, opens a socket or
logs: time and chance are arguments, and what a function decides it returns,
with the reason. Only the standard library is imported, and of that neither
asyncio nor anything that touches the outside. ``tests/test_layering.py`` holds
us to it.
"""
