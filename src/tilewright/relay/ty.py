"""TVM's `relay.ty`: the types of graph values."""

from tilewright.base.types import (
           FuncType,
           GlobalTypeVar,
           IncompleteType,
           RefType,
           TensorType,
           TupleType,
           Type,
           TypeCall,
           TypeKind,
           TypeRelation,
           TypeVar,
           scalar_type,
)
from tilewright.scalar.expr import UnknownDim as Any

__all__ = [
    "Any", "FuncType", "GlobalTypeVar", "IncompleteType", "RefType", "TensorType", "TupleType", "Type", "TypeCall",
    "TypeKind", "TypeRelation", "TypeVar", "scalar_type",
]
