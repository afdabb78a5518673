"""Names of TVM that a program uses, and the state of each: `tilewright migrate PATH`."""
