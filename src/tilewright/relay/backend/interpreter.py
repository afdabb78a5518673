"""Values of the interpreter, under TVM's names: `relay.backend.interpreter.ConstructorValue`."""

from tilewright.relay.interpreter import Closure, ConstructorValue, Interpreter, RefValue

__all__ = ["Closure", "ConstructorValue", "Interpreter", "RefValue"]
