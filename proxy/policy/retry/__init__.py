"""Retry decisions: the verdict after an attempt, back-off, retry hints, the retry budget."""
