"""The format-independent part of an importer: reading, converters, nodes, deferral, and the walk over a graph."""
