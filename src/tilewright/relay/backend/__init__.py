"""What runs relay programs, under the field's names."""

from tilewright.relay.backend import interpreter

__all__ = ["interpreter"]
