"""The part of an importer that does not depend on the format: reading protocol, converters, nodes, deferral, and the
walk over a graph."""
