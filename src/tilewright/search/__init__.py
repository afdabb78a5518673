"""Measuring programs: the engine under `autotvm` and `auto_scheduler`. See docs/measuring.md."""
