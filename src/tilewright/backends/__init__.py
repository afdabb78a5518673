"""Back ends: how programs are made for a machine."""
