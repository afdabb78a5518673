"""What every other package builds on: nodes, errors, types, settings, arrays, and limits."""
