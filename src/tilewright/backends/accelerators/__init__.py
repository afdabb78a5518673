"""Accelerators: declared in one file, or wrappers of a library."""
