"""From YAML text to a tree of nodes, each with its position. Knows no key."""
