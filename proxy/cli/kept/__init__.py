"""Clients of what the proxy keeps on disk: dead letters and deliveries; one of them, or many."""
