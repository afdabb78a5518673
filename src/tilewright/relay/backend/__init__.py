"""Executors of relay programs, under TVM's names."""

from tilewright.relay.backend import interpreter

__all__ = ["interpreter"]
