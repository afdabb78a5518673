"""A back end in a package of its own: a CPU with 128-bit vectors and a scratchpad in place of caches."""
