"""Faults and warnings, positions, and the words with which they are told. A leaf of config/."""
