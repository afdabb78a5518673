"""Make a higher-order program first-order: function values become data, and `apply` functions call them.

    def @main(%x) { let %f = fn (%y) { add(%x, %y) }; %f(%x) }
 -> type Func_0 { Func_0_0(float32), }
    def @main(%x) { let %f = Func_0_0(%x); @apply_0(%f, %x) }
    def @apply_0(%f: Func_0[], %a0) { match (%f) { Func_0_0(%x) => @lifted_main_0(%x, %a0) } }
    def @lifted_main_0(%x, %y) { add(%x, %y) }

Each function type becomes a data type. Its constructors are the functions of that type, and their fields are the
captured values (Reynolds, Definitional Interpreters for Higher-Order Programming Languages, 1972). Inner functions are
lifted first; generic functions are copied for each instantiation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.base.errors import CompileError, Origin
from tilewright.base.types import (
    FuncType,
    GlobalTypeVar,
    Type,
    TypeCall,
    substitute_type,
    type_children,
    with_type_children,
)
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
)
from tilewright.relay.analysis.variables import free_type_vars
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Let, Var
from tilewright.relay.node_labels import short
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.lambda_lift import LambdaLift
from tilewright.relay.transform.plain_closures import bound_types, called_with, plain_closures
from tilewright.relay.transform.remove_unused_functions import RemoveUnusedFunctions
from tilewright.relay.transform.to_basic_block_normal_form import ToBasicBlockNormalForm
from tilewright.relay.visitor import binders, operands, post_order, with_operands

Bound = dict[Type, Type]
Key = tuple[str, tuple[Type, ...]]
COPIES: Final = 100
"""Number of copies of a generic function at which instantiation is assumed to diverge."""
LARGEST: Final = 2000
"""Number of types in one type at which instantiation is assumed to diverge."""


@dataclass(frozen=True)
class Defunctionalize(Pass):
    """Replace function values by data types and `apply` functions. `main` and its callees have no function values or
    type parameters afterwards, and all types are known.

    Raises `CompileError` if `main` is generic or takes or returns functions, or if the types of a generic function
    cannot be inferred at a use.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        mod = InferType()(mod)
        main = mod["main"]
        if main.type_params or any(_has_function(t)
                                   for t in (*(p.checked_type for p in main.params), main.body.checked_type)):
            raise CompileError(f"@main has type {main.checked_type!r}; to make a program first-order, "
                               "it must not have type parameters, nor take or return functions", code="TW0404")
        lifted = InferType()(LambdaLift()(_with_plain_closures(mod)))
        work = _Defunctionalization(lifted)
        made = work.run()
        same = lifted is mod and not work.arrows and not work.copied and len(made) == len(mod)
        return mod if same else InferType()(made)


def _with_plain_closures(mod: IRModule) -> IRModule:
    """Return the module without generic inner functions."""
    found = {
        name: f for name, f in mod.items()
        if isinstance(f, Function) and not f.attrs.get("Compiler")
        and any(isinstance(e, Function) and e.type_params for e in post_order(f.body))}
    if not found:
        return mod
    new = mod.copy()
    for name, function in found.items():
        new[name] = plain_closures(ToBasicBlockNormalForm()(IRModule({"main": function}))["main"])
    return InferType()(new)


def Defunctionalization(func: Function, mod: IRModule) -> Function:
    """Return `func` without function values, in TVM's form: its functions and data types are added to `mod`."""
    program = mod.copy()
    program["main"] = func
    made = Defunctionalize()(program)
    found: Function = made["main"]
    mod.type_definitions.update(made.type_definitions)
    mod.update({name: f for name, f in made.items() if name != "main"})
    return found


def _has_function(t: Type) -> bool:
    return isinstance(t, FuncType) or any(map(_has_function, type_children(t)))


def _stays(function: Function) -> bool:
    """Return whether to keep a function unchanged: it belongs to another compiler and has no function values."""
    alone = not any(isinstance(e, GlobalVar) for e in post_order(function))
    return (bool(function.attrs.get("Compiler")) and alone
            and not any(map(_has_function, type_children(function.checked_type))))


def _size(t: Type) -> int:
    """Return the number of types in `t`, counted up to `LARGEST`."""
    count, stack = 0, [t]
    while stack and count <= LARGEST:
        count += 1
        stack.extend(type_children(stack.pop()))
    return count


@dataclass
class _Arrow:
    """The data type of a function type, and the function that applies its values.

    `cases` has the constructor of each function, and the names of its captured values.
    """

    type: FuncType
    header: GlobalTypeVar
    apply: GlobalVar
    cases: dict[GlobalVar | Constructor, tuple[Constructor, list[str]]] = field(default_factory=dict)


class _Defunctionalization:
    """One run over a module of lifted functions. Types are those before the pass, until `first_order` replaces them."""

    def __init__(self, mod: IRModule) -> None:
        self.mod, self.new = mod.copy(), IRModule({}, dict(mod.type_definitions))
        self.placed: dict[Function, GlobalVar] = {}
        self.arrows: list[_Arrow] = []
        self.copied = False
        self.instances: dict[Key, GlobalVar] = {}
        self.queue: deque[tuple[GlobalVar, Function, Bound]] = deque()
        self.constructors: dict[Constructor, Constructor] = {}
        self.taken = {*mod, *(h.name_hint for h in mod.type_definitions)}

    def run(self) -> IRModule:
        for header, data in self.mod.type_definitions.items():
            self.new.type_definitions[header] = self.definition(data)
        _ = self.instance(self.mod.get_global_var("main"), {})
        while self.queue:
            name, function, bound = self.queue.popleft()
            self.new[name] = _Body(self, bound).function(function)
        for arrow in self.arrows:
            self.new.type_definitions[arrow.header] = TypeData(arrow.header, (),
                tuple(c for c, _ in arrow.cases.values()))
        for arrow in self.arrows:
            self.new[arrow.apply] = self.applying(arrow)
        return RemoveUnusedFunctions()(self.new)

    def definition(self, data: TypeData) -> TypeData:
        """Return a data type with function fields replaced by data; unchanged if it has none."""
        if not any(_has_function(t) for c in data.constructors for t in c.inputs):
            return data
        for c in data.constructors:
            for t in c.inputs:
                if _has_function(t) and free_type_vars(t):
                    raise CompileError(f"{c.name_hint} of the data type {data.header} holds {t!r}, which depends on "
                                       "its type parameters; write out the types in its definition", c.span,
                                       code="TW0404")
        made = [Constructor(c.name_hint, [self.first_order(t) for t in c.inputs], data.header)
                for c in data.constructors]
        self.constructors.update(zip(data.constructors, made, strict=True))
        return TypeData(data.header, data.type_vars, tuple(made))

    def first_order(self, t: Type, span: Origin | None = None) -> Type:
        """Return `t`, the type of a value at `span`, with function types replaced by data types."""
        if isinstance(t, FuncType):
            return TypeCall(self.arrow(t, span).header, ())
        old = type_children(t)
        new = [self.first_order(c, span) for c in old]
        return t if all(a is b for a, b in zip(old, new, strict=True)) else with_type_children(t, new)

    def arrow(self, t: FuncType, span: Origin | None = None) -> _Arrow:
        found = next((a for a in self.arrows if a.type == t), None)
        if found is None:
            if t.type_params:
                raise CompileError(f"a value of the generic type {t!r} is used; call it by name, "
                                   "or wrap it in a function without type parameters", span, code="TW0404")
            found = _Arrow(t, GlobalTypeVar(self.name("Func")), GlobalVar(self.name("apply")))
            self.arrows.append(found)
        return found

    def name(self, prefix: str) -> str:
        k = 0
        while (found := f"{prefix}_{k}") in self.taken:
            k += 1
        self.taken.add(found)
        return found

    def instance(self, target: GlobalVar, bound: Bound) -> GlobalVar:
        """Return the first-order copy of a function for the types in `bound`. Captured values come first among its
        parameters."""
        name = target.name_hint
        function = self.mod[name]
        if not isinstance(function, Function) or _stays(function):
            self.new[target] = function
            return target
        variables = [v for v in dict.fromkeys((*function.type_params, *free_type_vars(function))) if v in bound]
        key = (name, tuple(bound[v] for v in variables))
        found = self.instances.get(key)
        if found is None:
            if sum(n == name for n, _ in self.instances) == COPIES or any(_size(t) > LARGEST for t in key[1]):
                raise CompileError(
                    f"@{name} is used with an unlimited number of types, for example "
                    "because it calls itself with a tuple of its argument; give it "
                    "fixed types", function.span, code="TW0404")
            self.copied = self.copied or bool(variables)
            found = self.instances[key] = GlobalVar(self.name(name) if variables else name)
            self.queue.append((found, function, {v: bound[v] for v in variables}))
        return found

    def place(self, function: Function) -> GlobalVar:
        """Add a kernel that is used as a value to the module, and return its name."""
        found = self.placed.get(function)
        if found is None:
            name = self.name("lifted")
            self.mod[name] = function
            found = self.placed[function] = self.mod.get_global_var(name)
        return found

    def value(self, t: FuncType, target: GlobalVar | Constructor, seen: Sequence[tuple[Var, Type]]) -> Constructor:
        """Return the constructor of the function `target` of type `t`, which captures `seen`."""
        arrow = self.arrow(t)
        if target not in arrow.cases:
            case = Constructor(self.name(arrow.header.name_hint), [k for _, k in seen], arrow.header)
            arrow.cases[target] = (case, [v.name_hint for v, _ in seen])
        return arrow.cases[target][0]

    def applying(self, arrow: _Arrow) -> Function:
        """Return the function that applies the values of the data type."""
        ret = self.first_order(arrow.type.ret_type)
        params = [Var(f"x{k}", self.first_order(t)) for k, t in enumerate(arrow.type.arg_types)]
        f = Var("f", TypeCall(arrow.header, ()))
        clauses = []
        for target, (case, names) in arrow.cases.items():
            fields = [Var(n, t) for n, t in zip(names, case.inputs, strict=True)]
            clauses.append(
                Clause(PatternConstructor(case, tuple(map(PatternVar, fields))), Call(target, [*fields, *params])))
        return Function([f, *params], Match(f, tuple(clauses)), ret)


class _Body:
    """A copy of the body of one function, for the types `bound` of its type variables."""

    def __init__(self, program: _Defunctionalization, bound: Bound) -> None:
        self.program, self.bound = program, bound
        self.new: dict[Expr, Expr] = {}
        self.named: dict[Expr, Expr] = {}
        self.called_as: dict[Expr, Type] = {}

    def function(self, function: Function) -> Function:
        inner = function.body if function.attrs.get("Closure") and isinstance(function.body, Function) else None
        params = (*function.params, *inner.params) if inner is not None else function.params
        whole, attrs = inner if inner is not None else function, {k: v for k, v in function.attrs.items()
            if k != "Closure"}
        order = post_order(whole.body)
        lets = [e for e in order if isinstance(e, Let)]
        self.named = {e.var: self.program.place(e.value) if isinstance(e.value, Function) else e.value for e in lets
                      if isinstance(e.value, (Function, GlobalVar))}
        self.called_as = {e: substitute_type(t, self.bound) for e, t in called_with(order).items()}
        for v in (*params, *(b for e in order for b in binders(e))):
            if v not in self.named:
                self.new[v] = Var(v.name_hint, self.first_order(v), v.span)
        for e in order:
            if e not in self.new and not isinstance(e, (GlobalVar, Constructor)) and e not in self.named:
                made = self.copied(e)
                if e.known_type() is not None and made is not e and not (isinstance(e, Function)
                        or isinstance(self.type_of(e), FuncType)):
                    made.set_type(self.first_order(e))
                self.new[e] = made
        ret = self.program.first_order(substitute_type(whole.body.checked_type, self.bound))
        return Function([self.var(p) for p in params], self.operand(whole.body), ret, None, attrs, function.span)

    def type_of(self, e: Expr) -> Type:
        return self.called_as.get(e) or substitute_type(e.checked_type, self.bound)

    def first_order(self, e: Expr) -> Type:
        return self.program.first_order(self.type_of(e), e.span)

    def var(self, v: Var) -> Var:
        found = self.new[v]
        assert isinstance(found, Var)
        return found

    def operand(self, e: Expr, wanted: Type | None = None, user: Expr | None = None) -> Expr:
        """Return the replacement of `e` where a call needs the type `wanted`."""
        e = self.program.place(e) if isinstance(e, Function) else self.named.get(e, e)
        if not isinstance(e, (GlobalVar, Constructor)):
            return self.new[e]
        t = wanted if isinstance(wanted, FuncType) else self.type_of(e)
        assert isinstance(t, FuncType)
        span = e.span if user is None else user.span
        _ = self.program.arrow(t, span)
        target = (self.program.instance(e, {**self.bound, **self.bindings(e, t.arg_types, t.ret_type, span)})
                  if isinstance(e, GlobalVar) else self.constructor(e))
        return self.known(Call(self.program.value(t, target, ()), ()), self.program.first_order(t))

    def constructor(self, c: Constructor) -> Constructor:
        return self.program.constructors.get(c, c)

    def bindings(self, target: GlobalVar | Constructor, args: Sequence[Type], ret: Type, span: Origin | None) -> Bound:
        """Return the types of the type parameters of a function at a call with these argument and result types."""
        own = self.program.mod[target.name_hint].checked_type if isinstance(target, GlobalVar) else target.checked_type
        assert isinstance(own, FuncType)
        bound = bound_types(own, args, ret)
        for v in own.type_params:
            if v not in bound and isinstance(target, GlobalVar):
                raise CompileError(f"the type {v!r} of @{target.name_hint} cannot be inferred from its arguments and "
                                   "its result at this use; annotate the types of the function there", span,
                                   code="TW0404")
        return bound

    def copied(self, e: Expr) -> Expr:
        match e:
            case Call():
                return self.call(e)
            case Function():
                return self.primitive(e)
            case Let():
                return self.new[e.body] if e.var in self.named else Let(self.var(e.var),
                    self.operand(e.value, self.type_of(e.var)), self.operand(e.body), e.span)
            case Match():
                clauses = [Clause(self.pattern(c.lhs), self.operand(c.rhs)) for c in e.clauses]
                return Match(self.operand(e.data), tuple(clauses), e.complete, e.span)
            case _:
                old = operands(e)
                return with_operands(e, [self.operand(o, None, e) for o in old]) if old else e

    def primitive(self, f: Function) -> Function:
        """Return a primitive function (one kernel) that is called in place."""
        ret = self.program.first_order(substitute_type(f.body.checked_type, self.bound))
        return Function([self.var(p) for p in f.params], self.operand(f.body), ret, None, f.attrs, f.span)

    def call(self, e: Call) -> Expr:
        if not isinstance(e.op, Expr):
            return Call(e.op, [self.operand(a) for a in e.args], span=e.span)
        op = self.named.get(e.op, e.op)
        given, ret = [self.type_of(a) for a in e.args], self.type_of(e)
        if isinstance(op, (GlobalVar, Constructor)):
            bound = self.bindings(op, given, ret, e.span)
            own = self.program.mod[op.name_hint].checked_type if isinstance(op, GlobalVar) else op.checked_type
            assert isinstance(own, FuncType)
            args = [self.operand(a, substitute_type(t, bound), e) for a, t in zip(e.args, own.arg_types, strict=True)]
            if isinstance(op, Constructor):
                return Call(self.constructor(op), args, span=e.span)
            target = self.program.instance(op, {**self.bound, **bound})
            return (self.closure(op, target, e, args) if _makes_closures(self.program.mod, op)
                    else Call(target, args, span=e.span))
        if isinstance(op, Function):
            return Call(self.new[op], [self.operand(a) for a in e.args], span=e.span)
        kind = self.type_of(op)
        if not isinstance(kind, FuncType):
            raise CompileError(f"{short(op)} is called, but has type {kind!r}", e.span, code="TW0404")
        args = [self.operand(a, t, e) for a, t in zip(e.args, kind.arg_types, strict=True)]
        if isinstance(op, Call) and isinstance(op.op, GlobalVar) and _makes_closures(self.program.mod, op.op):
            target = self.program.instance(
                op.op, {**self.bound, **self.bindings(op.op, [self.type_of(a) for a in op.args], kind, e.span)})
            return Call(target, [*(self.operand(a) for a in op.args), *args], span=e.span)
        return Call(self.program.arrow(kind).apply, [self.operand(op), *args], span=e.span)

    def closure(self, maker: GlobalVar, target: GlobalVar, e: Call, args: Sequence[Expr]) -> Expr:
        """Return the data value of a function that captures `args`."""
        t = self.type_of(e)
        assert isinstance(t, FuncType)
        seen = [(p, self.first_order(a)) for p, a in zip(self.program.mod[maker.name_hint].params, e.args, strict=True)]
        return self.known(Call(self.program.value(t, target, seen), args, span=e.span), self.program.first_order(t))

    def known(self, e: Expr, t: Type) -> Expr:
        e.set_type(t)
        return e

    def pattern(self, p: Pattern) -> Pattern:
        match p:
            case PatternVar():
                return PatternVar(self.var(p.var))
            case PatternTuple():
                return PatternTuple(tuple(map(self.pattern, p.patterns)))
            case PatternConstructor():
                return PatternConstructor(self.constructor(p.constructor), tuple(map(self.pattern, p.patterns)))
            case _:
                return p


def _makes_closures(mod: IRModule, name: GlobalVar) -> bool:
    function = mod[name.name_hint]
    return isinstance(function, Function) and bool(function.attrs.get("Closure"))
