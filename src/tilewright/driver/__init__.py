"""The command line: `tilewright compile`, `tilewright run`."""
