"""What a program uses of TVM, and whether it is here: `tilewright migrate PATH`."""
