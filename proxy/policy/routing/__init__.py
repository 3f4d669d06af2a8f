"""Route matching: which route takes a request, and the index of path patterns."""
