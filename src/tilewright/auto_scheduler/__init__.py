"""Template-free search (tmp)."""
