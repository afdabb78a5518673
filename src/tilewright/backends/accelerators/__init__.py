"""Accelerators beside a processor: declared in one file, or wrappers of a library."""
