"""How kernels are scheduled: one file for each shape of computation."""
