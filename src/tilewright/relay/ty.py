"""The field's `relay.ty`: the types of graph values."""

from tilewright.expr import UnknownDim as Any
from tilewright.types import (
           FuncType,
           GlobalTypeVar,
           RefType,
           TensorType,
           TupleType,
           Type,
           TypeCall,
           TypeVar,
           scalar_type,
)

__all__ = ["Any", "FuncType", "GlobalTypeVar", "RefType", "TensorType", "TupleType", "Type", "TypeCall", "TypeVar",
           "scalar_type"]
