"""From nodes to typed values: defaults, policies and shorthands merged, with their provenance."""
