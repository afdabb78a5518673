"""The values that the interpreter gives, under the field's names: `relay.backend.interpreter.ConstructorValue`."""

from tilewright.relay.interpreter import Closure, ConstructorValue, Interpreter, RefValue

__all__ = ["Closure", "ConstructorValue", "Interpreter", "RefValue"]
