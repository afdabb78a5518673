"""The engine under `autotvm` and `auto_scheduler`: measuring, records, features and cost models. See
docs/measuring.md."""
