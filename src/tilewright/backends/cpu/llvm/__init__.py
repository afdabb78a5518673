"""Code generation through LLVM text."""
