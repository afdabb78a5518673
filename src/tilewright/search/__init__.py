"""The basis of `autotvm` and `auto_scheduler`: measuring, records, features and cost models. See docs/measuring.md."""
