"""C99 text of flat loop programs, compiled by a C compiler of this machine."""
