"""The foundation of all other packages: nodes, errors, types, settings, arrays and limits."""
