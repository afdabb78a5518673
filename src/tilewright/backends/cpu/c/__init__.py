"""C99 text of flat loop programs, and what a compiler of this machine makes of it."""
