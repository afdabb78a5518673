"""The CPU back ends: code by LLVM and by C text, for one table of processors."""
