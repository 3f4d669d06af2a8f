"""Idempotency keys without I/O: reading a key, its record's states, what is kept of a response.

``key`` reads the key and names its record, ``record`` has the rules that every store follows,
``retention`` decides what becomes of a key, ``stored_response`` packs what duplicates get. The
modules here import each other, the flat modules of ``policy`` and ``http``; stores and pipeline
import them.
"""
