"""Dataflow patterns: match subgraphs, rewrite them, and outline them as functions.

`from tilewright.relay.dataflow_pattern import *` provides TVM's names: `is_op`, `wildcard`, `DFPatternCallback`,
`rewrite`, …
"""

from tilewright.relay.dataflow_pattern.match import match
from tilewright.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from tilewright.relay.dataflow_pattern.rewrite import DFPatternCallback, rewrite

__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DFPatternCallback", "DataTypePattern",
    "DominatorPattern", "ExprPattern",
    "FunctionPattern", "IfPattern", "LetPattern", "ShapePattern", "TupleGetItemPattern", "TuplePattern", "TypePattern",
    "VarPattern", "WildcardPattern",
    "dominates", "has_attr", "has_dtype", "has_shape", "has_type", "is_constant", "is_expr", "is_if", "is_let", "is_op",
    "is_tuple", "is_tuple_get_item",
    "is_var", "match", "rewrite", "wildcard",
]
