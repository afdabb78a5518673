"""Tuples and values of data types as parameters and results of `main`.

    def @main(%t: (A, List[B])) { body }  ->  def @main(%t.0: A, %t.1: List[B]) { body with (%t.0, %t.1) for %t }

A parameter that is a tuple becomes one parameter for each field. The structure of the original values is described by
an `EntryLayout`, an attribute of the new function, which the manifest stores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tilewright.base.errors import CompileError
from tilewright.base.graphs import reachable
from tilewright.base.types import TensorType, TupleType, Type, TypeCall, substitute_type
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Tuple, Var
from tilewright.relay.op.deferred import Waiting
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import operands, post_order, substitute
from tilewright.runtime.entry_layout import DATA, TENSOR, TUPLE, UNKNOWN, EntryLayout, Layout

ENTRY_LAYOUT: Final = "entry_layout"
"""Attribute of `main`: the `EntryLayout` of its values, if not all are tensors."""
_MOST_TYPES: Final = 64
"""Number of data types, each applied to types, that are reachable from the values of one `main`."""


def with_plain_entry(mod: IRModule) -> IRModule:
    """Return the module with a `main` that takes tensors and values of data types, and is annotated with its layout.

    A module whose `main` takes tensors and returns tensors, or a tuple of tensors, is returned as it is.
    """
    main = mod["main"]
    if not isinstance(main, Function) or ENTRY_LAYOUT in main.attrs:
        return mod
    kinds = [p.known_type() for p in main.params]
    if not any(isinstance(t, (TupleType, TypeCall)) for t in kinds) and not _has_structure(main):
        return mod
    if main.type_params or _calls_main(mod) or _waits(main):
        return mod
    typed = InferType()(mod)
    main = typed["main"]
    if main.ret_type is None:
        return mod
    described = _Layouts(typed)
    try:
        inputs = tuple((p.name_hint, described.layout(p.checked_type)) for p in main.params)
        layout = EntryLayout(inputs, described.layout(main.ret_type), described.types)
    except _NoLayoutError:
        return mod
    if described.types and not described.is_static:
        return mod
    new = dict(_flat(p, p.checked_type, p.name_hint) for p in main.params)
    body = substitute(main.body, {p: e for p, (e, _) in new.items() if p is not e})
    params = [v for _, leaves in new.values() for v in leaves]
    made = typed.copy()
    attrs = {**main.attrs, ENTRY_LAYOUT: json.dumps(layout.to_json())}
    made["main"] = Function(params, body, main.ret_type, (), attrs, main.span)
    return made


def layout_of(main: Function) -> EntryLayout | None:
    """Return the layout of the values of a `main` of `with_plain_entry`; None if all are tensors."""
    found = main.attrs.get(ENTRY_LAYOUT)
    return None if found is None else EntryLayout.from_json(json.loads(found))


def has_records(main: Function) -> bool:
    """Whether a `main` of `with_plain_entry` takes or returns values of data types."""
    layout = layout_of(main)
    return layout is not None and (layout.is_boxed or bool(layout.records))


def _has_structure(main: Function) -> bool:
    """Whether the result is known to contain tuples in a tuple, or values of data types; True if it is not known."""
    kind = main.ret_type or main.body.known_type()
    if isinstance(kind, TupleType):
        return not all(isinstance(f, TensorType) for f in kind.fields)
    return not isinstance(kind, TensorType)


def _waits(main: Function) -> bool:
    """Whether nodes of an imported model wait for values; such a model takes and returns tensors."""
    return any(isinstance(e, Call) and isinstance(e.op, Waiting) for e in post_order(main))


def _calls_main(mod: IRModule) -> bool:
    functions = [f.body for f in mod.functions.values() if isinstance(f, Function)]
    return any(isinstance(e, GlobalVar) and e.name_hint == "main" for e in reachable(functions, operands))


def _flat(p: Var, kind: Type, name: str) -> tuple[Var, tuple[Expr, list[Var]]]:
    """Return a parameter, the expression that replaces it, and the new parameters of that expression."""
    if not isinstance(kind, TupleType):
        return p, (p, [p])
    leaves: list[Var] = []

    def made(t: Type, name: str) -> Expr:
        if isinstance(t, TupleType):
            return Tuple(tuple(made(f, f"{name}.{k}") for k, f in enumerate(t.fields)), p.span)
        leaves.append(Var(name, t, p.span))
        return leaves[-1]

    return p, (made(kind, name), leaves)


class _NoLayoutError(Exception):
    """A value of functions, references or unknown sizes."""


class _Layouts:
    """Makes layouts of types; `types` are the data types that it met, `is_static` whether all sizes are known."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.types: dict[str, list[tuple[str, list[Layout]]]] = {}
        self.is_static = True

    def layout(self, kind: Type) -> Layout:
        if isinstance(kind, TensorType) and not kind.dtype.is_object:
            self.is_static &= kind.is_static
            return [TENSOR, str(kind.dtype), [int(n) if isinstance(n, int) else UNKNOWN for n in kind.shape]]
        if isinstance(kind, TupleType):
            return [TUPLE, [self.layout(f) for f in kind.fields]]
        if isinstance(kind, TypeCall):
            return [DATA, self._named(kind)]
        raise _NoLayoutError

    def _named(self, kind: TypeCall) -> str:
        name = repr(kind)
        if name in self.types:
            return name
        try:
            data = self.mod.lookup_type(kind.func.name_hint)
        except CompileError:
            raise _NoLayoutError from None
        if len(self.types) == _MOST_TYPES:
            raise _NoLayoutError
        bound: Mapping[Type, Type] = dict(zip(data.type_vars, kind.args, strict=True))
        found = self.types[name] = []
        for c in data.constructors:
            found.append((c.name_hint, [self.layout(substitute_type(t, bound)) for t in c.inputs]))
        return name
