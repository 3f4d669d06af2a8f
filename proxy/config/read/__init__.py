"""Reading: from nodes to typed values, by the schema, with their provenance.

``reader`` turns nodes into the typed tree (``typed_tree``); ``effective`` looks values up with
defaults filled in; ``settings`` makes the settings of them; ``provenance`` says where each was
written; ``secrets`` masks; ``unknown_keys`` words the suggestion for a key that does not exist. May
import ``source/``, ``schema/``, ``values/``, ``diagnostics/`` and ``http/``.
"""
