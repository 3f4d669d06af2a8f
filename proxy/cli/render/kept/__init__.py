"""Pages of what the proxy keeps on disk: dead letters and deliveries, and each of their runs."""
