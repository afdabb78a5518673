"""Make a global function of every region assigned to a target.

    nn.relu(compiler_end(nn.bias_add(compiler_begin(%x, "npu"), compiler_begin(b, "npu")), "npu"))
    -> nn.relu(@tvmgen_default_npu_main_0(%x))
       def @tvmgen_default_npu_main_0(%npu_0_i0, Inline=1, Compiler="npu", Primitive=1,
                                      global_symbol="tvmgen_default_npu_main_0")
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import CompileError
from tilewright.base.global_functions import get_global_func
from tilewright.base.types import TupleType, Type
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.analysis.regions import DEFAULT, Region, is_begin, is_end, is_mark, open_nodes, regions_of
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.annotation import CompilerEnd
from tilewright.relay.visitor import operands, with_operands


@dataclass(frozen=True)
class PartitionGraph(Pass):
    """Make a global function of each region. Needs the marks of `AnnotateTarget`, and leaves none. Regions of `default`
    stay inline.

    A function is named `tvmgen_<mod_name>_<target>_<function>_<number of the region>`; several results are a
    tuple of tensors.
    Constants stay inside, unless `bind_constants` is False. A registered function `relay.ext.<target>.optimize`, module
    -> module, receives the functions of its target, and its result replaces them. Raises `CompileError` for unmatched
    marks.
    """

    mod_name: str = "default"
    bind_constants: bool = True

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        new = mod.copy()
        for name, function in mod.items():
            if isinstance(function, Function) and "Compiler" not in function.attrs:
                changed = _Partition(self, new, name).of(_prepared(function))
                if changed is not function:
                    new.update_func(name, changed)
        _optimize(new, {str(f.attrs["Compiler"]) for n, f in new.items() if n not in mod and isinstance(f, Function)})
        return new


def _optimize(mod: IRModule, targets: set[str]) -> None:
    """Replace the functions of each target by the result of its hook, if it has one."""
    for target in sorted(targets):
        hook = get_global_func(f"relay.ext.{target}.optimize", allow_missing=True)
        if hook is not None:
            found = hook(IRModule(
                {n: f for n, f in mod.items() if isinstance(f, Function) and f.attrs.get("Compiler") == target}))
            if not isinstance(found, IRModule):
                raise CompileError(f"the hook relay.ext.{target}.optimize returned "
                                   f"{type(found).__name__}; it must return a module of functions", code="TW0409")
            mod.update(found)


def _prepared(function: Function) -> Expr:
    """Remove the marks of `default`, and move the end mark of a tuple to its fields."""
    new: dict[Expr, Expr] = {}
    for e in open_nodes(function):
        old = operands(e)
        if is_mark(e) and e.op.compiler == DEFAULT:
            new[e] = new.get(old[0], old[0])
        elif is_end(e) and isinstance(old[0], Tuple):
            fields = operands(new.get(old[0], old[0]))
            new[e] = Tuple(tuple(f.args[0] if is_begin(f) else CompilerEnd(e.op.compiler)(f) for f in fields), e.span)
        elif any(o in new for o in old):
            new[e] = with_operands(e, [new.get(o, o) for o in old])
    return new.get(function, function)


class _Partition:
    """The regions' functions of one function, created on demand."""

    def __init__(self, options: PartitionGraph, mod: IRModule, name: str) -> None:
        self.options, self.mod, self.name = options, mod, name
        self.new: dict[Expr, Expr] = {}
        self.values: dict[Region, dict[Expr, Expr]] = {}

    def of(self, function: Expr) -> Expr:
        region = regions_of(open_nodes(function))
        for e in _calling_order(function, region) if region else ():
            old = operands(e)
            if is_end(e) and e in region:
                self.new[e] = self._result(region[e], e)
            elif any(o in self.new for o in old):
                self.new[e] = with_operands(e, [self.new.get(o, o) for o in old])
        return self.new.get(function, function)

    def _result(self, region: Region, end: Call) -> Expr:
        """Return the replacement of an outgoing value: the call of the region's function, or a field of it."""
        if region not in self.values:
            self.values[region] = self._called(region)
        return self.values[region][end.args[0]]

    def _called(self, region: Region) -> dict[Expr, Expr]:
        """Add the region's function to the module; return the replacements of its results."""
        params: dict[Expr, Var] = {}
        inside: dict[Expr, Expr] = {}
        for i, begin in enumerate(region.ins):
            source = begin.args[0]
            if self.options.bind_constants and _is_constant(source):
                inside[begin] = source
            else:
                inside[begin] = params.setdefault(source, Var(f"{region.target}_{region.id}_i{i}", source.known_type()))
        for e in region.nodes:
            if not is_mark(e):
                old = operands(e)
                if any(o in inside for o in old):
                    inside[e] = with_operands(e, [inside.get(o, o) for o in old])
        results: dict[Any, list[Expr]] = {}
        for end in dict.fromkeys(end.args[0] for end in region.outs):
            results.setdefault((end.tuple_value, end.index) if isinstance(end, TupleGetItem) else end, []).append(end)
        made = [inside.get(same[0], same[0]) for same in results.values()]
        kinds = [same[0].known_type() for same in results.values()]
        if len(made) > 1:
            made = [part for value, kind in zip(made, kinds, strict=True) for part in _parts(value, kind)]
        symbol = self._symbol(region)
        attrs = {"Inline": 1, "Compiler": region.target, "global_symbol": symbol, "Primitive": 1}
        function = Function(tuple(params.values()), made[0] if len(made) == 1 else Tuple(tuple(made)), attrs=attrs)
        self.mod[symbol] = function
        call = Call(self.mod.get_global_var(symbol), [self.new.get(s, s) for s in params],
                    span=region.outs[-1].args[0].span)
        parts = iter([TupleGetItem(call, i) for i in range(len(made))])
        values = [call] if len(results) == 1 else [_joined(kind, parts) for kind in kinds]
        return {r: value for value, same in zip(values, results.values(), strict=True) for r in same}

    def _symbol(self, region: Region) -> str:
        """Return the name of the region's function: letters, digits and underscores."""
        name = re.sub(r"\W", "_", f"tvmgen_{self.options.mod_name}_{region.target}_{self.name}_{region.id}")
        if name in self.mod:
            raise CompileError(f"the module already has a function @{name}; give PartitionGraph a "
                               f"mod_name other than '{self.options.mod_name}'", code="TW0414")
        return name


def _parts(value: Expr, kind: Type | None) -> list[Expr]:
    """Return the tensors of a value: the fields of a tuple, also of tuples inside it."""
    if not isinstance(kind, TupleType):
        return [value]
    return [part for i, field in enumerate(kind.fields) for part in _parts(
        value.fields[i] if isinstance(value, Tuple) else TupleGetItem(value, i), field)]


def _joined(kind: Type | None, parts: Iterator[Expr]) -> Expr:
    """Return a value of a type, made of the next parts: the inverse of `_parts`."""
    return Tuple(tuple(_joined(field, parts) for field in kind.fields)) if isinstance(kind, TupleType) else next(parts)


def _calling_order(root: Expr, region: Mapping[Expr, Region]) -> list[Expr]:
    """Return the nodes outside of regions and the end marks, each after everything that its region reads."""
    done: dict[Expr, None] = {}
    entered: set[Expr] = set()
    stack = [(root, False)]
    while stack:
        e, ready = stack.pop()
        if ready:
            done[e] = None
        elif e not in entered:
            entered.add(e)
            stack.append((e, True))
            below = [begin.args[0] for begin in region[e].ins] if e in region else operands(e)
            stack.extend((o, False) for o in reversed(below))
        elif e not in done:
            raise CompileError("a region reads a value that depends on its own results; split "
                               "it into two regions", e.span, code="TW0414")
    return list(done)


def _is_constant(e: Expr) -> bool:
    return isinstance(e, Constant) or (isinstance(e, Tuple) and all(map(_is_constant, e.fields)))
