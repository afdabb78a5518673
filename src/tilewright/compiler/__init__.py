"""From an `IRModule` to an artifact, and the short door."""
