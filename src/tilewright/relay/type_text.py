"""The text of types; a name denotes one type variable or symbolic dimension in a whole text.

    Tensor[(1, ?, n), float32]    (int32, bool)    fn [A](A) -> List[A]    ref(float32)

Dimensions are int64 unless annotated: `n: int32`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from tilewright.base.types import (
    INT64,
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from tilewright.scalar.expr import Binary, PrimExpr, UnknownDim, Var

WORD: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_DTYPE: Final = re.compile(r"(bool|handle|void|bfloat|float|int|uint)\d*(x\d+)?")
_INFIX: Final = frozenset("+-*")
_CALLS: Final = {"//": "floordiv", "%": "floormod"}
KEYWORDS: Final = frozenset({
    "Tensor", "fn", "ref", "let", "if", "else", "match", "def", "type", "extern", "free_var", "meta", "constructor",
    "ref_read", "ref_write",
    "True", "False", "_", "min", "max",
})


class TypeNames:
    """The names of type variables and symbolic dimensions of one text; names in `taken`, its data types, are reserved.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._names: dict[TypeVar | Var, str] = {}
        self._texts: dict[Type, str] = {}

    def text(self, t: Type) -> str:
        """Return the text of a type; types that differ only in a variable have different texts."""
        known = self._texts.get(t)
        if known is None:
            known = self._texts[t] = self._made(t)
        return known

    def params(self, variables: Iterable[TypeVar]) -> str:
        """Return `[A, B]`, or an empty string."""
        names = [self.name(v) for v in variables]
        return f"[{', '.join(names)}]" if names else ""

    def name(self, v: TypeVar | Var) -> str:
        """Return the unique name of a type variable or symbolic dimension."""
        known = self._names.get(v)
        if known is None:
            hint = v.name_hint if isinstance(v, TypeVar) else v.name
            plain = re.sub(r"\W", "_", hint)
            plain = plain if plain[:1].isidentifier() else f"v{plain}"
            known, count = plain, 0
            while known in self._taken or known in KEYWORDS or _DTYPE.fullmatch(known) or known in _CALLS.values():
                count += 1
                known = f"{plain}{count}"
            self._taken.add(known)
            self._names[v] = known
        return known

    def _made(self, t: Type) -> str:
        match t:
            case TensorType():
                return repr(t) if t.is_static else f"Tensor[({', '.join(map(self._dim, t.shape))}), {t.dtype}]"
            case TupleType():
                return f"({', '.join(map(self.text, t.fields))}{',' * (len(t.fields) == 1)})"
            case FuncType():
                return (f"fn {self.params(t.type_params)}({', '.join(map(self.text, t.arg_types))}) -> "
                        f"{self.text(t.ret_type)}")
            case RefType():
                return f"ref({self.text(t.value)})"
            case TypeCall():
                return f"{word(t.func.name_hint)}[{', '.join(map(self.text, t.args))}]"
            case TypeVar():
                return self.name(t)
            case GlobalTypeVar():
                return word(t.name_hint)
            case _:
                return repr(t)

    def _dim(self, d: int | PrimExpr) -> str:
        match d:
            case UnknownDim():
                return "?"
            case Var():
                return self._size(d)
            case Binary():
                a, b = self._part(d.a), self._part(d.b)
                return f"{a} {d.symbol} {b}" if d.symbol in _INFIX else f"{_CALLS.get(d.symbol, d.symbol)}({a}, {b})"
            case _:
                return str(d)

    def _part(self, d: PrimExpr) -> str:
        text = self._dim(d)
        return f"({text})" if isinstance(d, Binary) and d.symbol in _INFIX else text

    def _size(self, v: Var) -> str:
        return self.name(v) if v.dtype == INT64 else f"{self.name(v)}: {v.dtype}"


def word(name: str) -> str:
    """Return a name for a position that expects a word: in back quotes if it is not a word."""
    if WORD.fullmatch(name) and name not in KEYWORDS:
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"
