"""The CPU back ends, LLVM and C, which share a table of processors."""
