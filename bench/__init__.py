"""What Holdfast costs, measured beside its peers in one run. Start with :mod:`bench.run`."""
