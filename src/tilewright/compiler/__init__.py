"""The compiler: from an `IRModule` to an artifact, and `compile` for model files."""
