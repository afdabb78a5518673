"""Statements and functions of TIR, the loop language. The complete grammar:

    stmt ::= For(var, min, extent, kind, body)      kind: serial | parallel | vectorized | unrolled
           | IfThenElse(condition, then_case, else_case?)
           | Store(buffer, value, indices, mask?)
           | Seq(stmts)
           | Allocate(buffer, body)
           | Let(var, value, body)
           | AttrStmt(node, attr_key, value, body)  a note of the attribute `attr_key` of `node`
           | Evaluate(call)                          a call with an effect
           | Block(name, iters, bindings, predicate, init?, body)      while it is being scheduled
    func ::= PrimFunc(name, params, body, attrs)     params are buffers, inputs before outputs

A program is *schedulable* while its stores are in blocks, and *lowered* once blocks are gone (`lower_blocks`). It is
*flat* once every buffer has one dimension and no loop is vectorized or unrolled; code generation takes flat programs. A
block is one computation. Its `iters` range over the whole domain of the computed value; `bindings` map the loops around
it to the point that a trip computes. A block inside another is part of its computation, and uses its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, overload

from tilewright.base.errors import CompileError, Origin
from tilewright.base.node import node
from tilewright.base.scriptable import Scriptable
from tilewright.base.types import BOOL, DataType
from tilewright.scalar.expr import Buffer, Call, ExprLike, Load, PrimExpr, Var, as_expr, const, number_of
from tilewright.scalar.intrinsics import address_of
from tilewright.scalar.range import Range
from tilewright.scalar.walk import rewrite, substitute, walk

if TYPE_CHECKING:
    from tilewright.tir.block_regions import BufferRegion

SERIAL, PARALLEL, VECTORIZED, UNROLLED = "serial", "parallel", "vectorized", "unrolled"


class ForKind:
    """The kinds of loops under TVM's names."""

    SERIAL, PARALLEL, VECTORIZED, UNROLLED = SERIAL, PARALLEL, VECTORIZED, UNROLLED


class Stmt(Scriptable):
    """Base of statements. Their constructors take numbers where expressions are expected."""

    __slots__ = ()

    def __repr__(self) -> str:
        from tilewright.tir.printer import text_of_stmt

        return text_of_stmt(self)

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    @property
    def block(self) -> Block:
        """The root block around the body of a function, which has no statement here; a block is its own."""
        return Block(ROOT_BLOCK, (), (), const(1, BOOL), None, self)


def _fill(s: Stmt, **fields: Any) -> None:
    """Set fields of a new statement, whose class may be frozen."""
    for name, value in fields.items():
        object.__setattr__(s, name, value)


@node
class For(Stmt):
    """`for var in range(min, min + extent)`; a vectorized or unrolled loop has a constant extent."""

    var: Var
    min: PrimExpr
    extent: PrimExpr
    kind: str
    body: Stmt
    annotations: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.min, PrimExpr) and isinstance(self.extent, PrimExpr)):
            _fill(self, min=as_expr(self.min, self.var.dtype), extent=as_expr(self.extent, self.var.dtype))

    @property
    def loop_var(self) -> Var:
        return self.var


@node
class IfThenElse(Stmt):
    condition: PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.condition, PrimExpr):
            _fill(self, condition=as_expr(self.condition))


@node
class Store(Stmt):
    """`buffer[indices] = value`; with a vector index, the lanes where `mask` holds (all without one)."""

    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]
    mask: PrimExpr | None = None

    def __post_init__(self) -> None:
        if type(self.indices) is not tuple or not isinstance(self.value, PrimExpr):
            _fill(self, value=as_expr(self.value, None if isinstance(self.value, ExprLike) else self.buffer.dtype),
                  indices=tuple(as_expr(i) for i in self.indices))


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        if type(self.stmts) is not tuple:
            _fill(self, stmts=tuple(self.stmts))

    @property
    def seq(self) -> tuple[Stmt, ...]:
        return self.stmts

    def __len__(self) -> int:
        return len(self.stmts)

    def __getitem__(self, at: int) -> Stmt:
        return self.stmts[at]


@node
class Allocate(Stmt):
    """`buffer` is allocated for the duration of `body`; it is uninitialized. `annotations` are notes for passes."""

    buffer: Buffer
    body: Stmt
    annotations: dict[str, Any] = field(default_factory=dict)

    def __init__(self, *args: Any, **fields: Any) -> None:
        """Allocate a buffer, or, with TVM's arguments, the buffer `buffer_var`, which has `dtype` and `extents`."""
        if len(args) > 3 or "buffer_var" in fields:
            from tilewright.tir.memory import described

            args, fields = described(*args, **fields), {}
        given = {"annotations": None, **dict(zip(("buffer", "body", "annotations"), args, strict=False)), **fields}
        _fill(self, **{**given, "annotations": dict(given["annotations"] or {})})

    @property
    def extents(self) -> list[PrimExpr]:
        """The sizes of the dimensions."""
        return [as_expr(d) for d in self.buffer.shape]

    @property
    def dtype(self) -> DataType:
        return self.buffer.dtype

    @property
    def buffer_var(self) -> Buffer:
        """The buffer, which is the variable of its memory, too."""
        return self.buffer

    @property
    def condition(self) -> PrimExpr:
        """Whether the memory is allocated: always."""
        return const(1, BOOL)


@node
class ProducerRealize(Allocate):
    """The memory of a computed tensor, `producer`, in a scheduled statement that is not a function yet."""

    producer: Any = None

    @property
    def bounds(self) -> list[Range]:
        """The range of each dimension."""
        return [Range(d) for d in self.buffer.shape]

    @property
    def storage_scope(self) -> str:
        return self.buffer.scope


@node
class Let(Stmt):
    var: Var
    value: PrimExpr
    body: Stmt

    def __post_init__(self) -> None:
        if not isinstance(self.value, PrimExpr):
            _fill(self, value=as_expr(self.value, None if isinstance(self.value, ExprLike) else self.var.dtype))


@node
class AttrStmt(Stmt):
    """The attribute `attr_key` of `node` is `value` in `body`. A note for passes, which code generation leaves out.

    `node` is a variable, a buffer, a number or a string. Threads are no attributes, but loops with the annotation
    `THREAD`.
    """

    node: Any
    attr_key: str
    value: PrimExpr | str
    body: Stmt

    def __post_init__(self) -> None:
        if not isinstance(self.value, (PrimExpr, str)):
            _fill(self, value=as_expr(self.value, "int32" if type(self.value) is int else None))


@node
class Evaluate(Stmt):
    value: PrimExpr

    def __post_init__(self) -> None:
        if not isinstance(self.value, PrimExpr):
            _fill(self, value=as_expr(self.value))


@node
class IterVar(ExprLike):
    """An axis of a block or of a computation, over `[0, extent)`. In an expression it is its variable."""

    var: Var
    extent: PrimExpr
    kind: str = "spatial"
    """`spatial`, or `reduce` if trips along it are reduced into one element. The trips along a `scan` or `opaque` axis
    compute separate elements too, but keep their order."""

    DataPar: ClassVar = 0  # the kinds of axes and loops as numbers, which TVM has
    ThreadIndex: ClassVar = 1
    CommReduce: ClassVar = 2
    Ordered: ClassVar = 3
    Opaque: ClassVar = 4
    Unrolled: ClassVar = 5
    Vectorized: ClassVar = 6
    Parallelized: ClassVar = 7
    Tensorized: ClassVar = 8

    @property
    def dom(self) -> Range:
        """The range of the axis."""
        return Range.from_min_extent(0, self.extent)

    @property
    def expr(self) -> Var:
        return self.var

    def __repr__(self) -> str:
        return f"{self.var.name}: {self.extent}{'' if self.kind == 'spatial' else f' {self.kind}'}"


@node
class Reducer(Scriptable):
    """The combiner of a block's reduction: `params` are the old values, then the new ones; `body` are the combined
    values.

    `neutral` are the neutral values. A reduction's block has it as `annotations["combiner"]`.
    """

    name: str
    params: tuple[Var, ...]
    body: tuple[PrimExpr, ...]
    neutral: tuple[PrimExpr, ...]

    def combine(self, old: Sequence[PrimExpr], new: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        values = dict(zip(self.params, (*old, *new), strict=True))
        return tuple(substitute(e, values) for e in self.body)

    def identity(self, dtypes: Sequence[DataType]) -> tuple[PrimExpr, ...]:
        """Return the neutral values; `dtypes` are ignored, since the values are typed."""
        return self.neutral


@node
class Block(Stmt):
    """`body`, a store, at the point `iters := bindings`, where `predicate` is true; `init` runs before the first
    reduction step."""

    name: str
    iters: tuple[IterVar, ...]
    bindings: tuple[PrimExpr, ...]
    predicate: PrimExpr
    init: Stmt | None
    body: Stmt
    annotations: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None

    uncompared_fields: ClassVar = frozenset({"name"})
    uncompared_keys: ClassVar = frozenset({"combiner"})
    """The annotation with the reducer follows from the two statements."""

    @property
    def name_hint(self) -> str:
        """The name of the block."""
        return self.name

    @property
    def iter_vars(self) -> tuple[IterVar, ...]:
        """The axes."""
        return self.iters

    @property
    def block(self) -> Block:
        """The block itself, which has its bindings, where TVM has a statement of its own for these."""
        return self

    @property
    def reads(self) -> list[BufferRegion]:
        """The boxes of buffers that the block reads, over its axes."""
        from tilewright.tir.block_regions import regions_read

        return regions_read(self)

    @property
    def writes(self) -> list[BufferRegion]:
        """The boxes of buffers that the block writes, over its axes."""
        from tilewright.tir.block_regions import regions_written

        return regions_written(self)


ROOT_BLOCK = "root"
"""Name of the block around all others, which has no statement: its annotations are an attribute of the function."""
ROOT_ATTRS = "root_block"
"""Attribute of a function: the annotations of its root block."""
SCALARS = "scalars"
"""Attribute of a function: `((position, Var), …)`, its scalar arguments. Symbolic dimensions of its buffers are no
arguments."""
ALIGNED = "buffer_dim_align"
"""Annotation of a block: `((result, dimension, factor, offset), …)`, the required strides of dimensions of its results.
"""
IMPORTS = "import_llvm"
"""Attribute of a function: LLVM texts with functions that it calls."""
ROLLING = "rolling"
"""Annotation of a loop: the ring buffers, which keep values of one trip for the next."""
THREAD = "thread"
"""Annotation of a loop: the kind of thread that its trips are bound to; `vthread` loops are plain loops."""
SCOPE = "scope"
"""Annotation of a loop in the function of a block's body: it stands for an axis or a loop outside of the block
(`nested_blocks.py`)."""
TAKEN = "taken"
"""Attribute of the function of a block's body: the names of the blocks outside."""
NUMBERS = "numbers"
"""Attribute of a function during code generation: the `Var`s that its code takes after the buffers, in order."""
RESULT = "result"
"""Attribute of a function during code generation: the parameter of one element that its result is stored in."""
CALLBACKS = "callbacks"
"""Attribute of a function during code generation: `((Var, CallbackType), …)`, addresses that it calls."""
SCALAR_LOOPS = "scalar_loops"
"""Attribute of a function during code generation: it has loops that no schedule vectorized, which LLVM vectorizes."""
VERSIONED = "versioned"
"""Attribute of a function: it consists of several versions, of which a call takes one, so each pass over its code
costs several times as much."""


@node
class PrimFunc:
    """A function over memory: `params` are buffers in the order of the call; `attrs` are for passes and printing."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    attrs: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None

    uncompared_fields: ClassVar = frozenset({"name"})
    uncompared_keys: ClassVar = frozenset({"argument_names", "global_symbol", "tir.noalias", "intermediates"})
    """Attributes that are the name, or hold for all functions: memory of parameters never overlaps. Intermediate
    buffers are compared where they are used, since their order has no meaning."""

    @overload
    def __init__(
        self, name: str, params: Sequence[Buffer], body: Stmt, attrs: dict[str, Any] | None = None,
        origin: Origin | None = None
    ) -> None: ...
    @overload
    def __init__(
        self, params: Sequence[Any], body: Stmt, ret_type: None = None,
        buffer_map: Mapping[Var, Buffer] | None = None, attrs: Mapping[str, Any] | None = None
    ) -> None: ...
    def __init__(self, *args: Any, **fields: Any) -> None:
        """Make a function of buffers, or, without a name, one of TVM's arguments: variables, and buffers for handles.
        """
        if args and not isinstance(args[0], str):
            args, fields = _signed(*args, **fields), {}
        elif not args and "name" not in fields:
            args, fields = _signed(**fields), {}
        given = {"attrs": None, "origin": None, **dict(zip(_FIELDS, args, strict=False)), **fields}
        given["attrs"] = {} if given["attrs"] is None else given["attrs"]
        for name in _FIELDS:
            object.__setattr__(self, name, given[name])

    def __repr__(self) -> str:
        from tilewright.tir.printer import text_of_func

        return text_of_func(self)

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    def script(self, *, show_meta: bool = False) -> str:
        """Return the text of the function, for `tir.parse`; it has no metadata, so `show_meta` has no effect."""
        return repr(self)

    def show(self) -> None:
        """Print the text of the function."""
        print(self.script())

    def with_body(self, body: Stmt) -> PrimFunc:
        return self if body is self.body else replace(self, body=body)

    @property
    def __name__(self) -> str:
        """The name, as that of a Python function."""
        return self.name

    @property
    def buffer_map(self) -> dict[Buffer, Buffer]:
        """The buffers of the parameters. Parameters are buffers themselves, so each is mapped to itself."""
        return {b: b for b in self.params}

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> PrimFunc:
        """Return the function with an attribute, or several; `global_symbol` is its name."""
        given = {key: value} if isinstance(key, str) else dict(key)
        name = str(given.pop("global_symbol", self.name))
        return replace(self, name=name, attrs={**self.attrs, **given})

    def without_attr(self, key: str) -> PrimFunc:
        """Return the function without an attribute."""
        return replace(self, attrs={k: v for k, v in self.attrs.items() if k != key})


_FIELDS: Final = ("name", "params", "body", "attrs", "origin")


def _signed(
    params: Sequence[Any], body: Stmt, ret_type: None = None, buffer_map: Mapping[Var, Buffer] | None = None,
    attrs: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """Return the fields of a function for TVM's arguments; scalars become an attribute."""
    bound = buffer_map or {}
    found = [bound.get(p, p) if isinstance(p, Var) else getattr(p, "buffer", p) for p in params]
    wrong = next((p for p in found if not isinstance(p, (Var, Buffer))), ret_type)
    if wrong is not None:
        raise CompileError(
            f"a function takes variables and buffers, and returns nothing; {wrong!r} ({type(wrong).__name__}) is "
            "neither", code="TW0611")
    given = dict(attrs or {})
    name = str(given.pop("global_symbol", "main"))
    scalars = tuple((place, p) for place, p in enumerate(found) if isinstance(p, Var))
    buffers = tuple(p for p in found if isinstance(p, Buffer))
    return name, buffers, body, {**given, **({SCALARS: scalars} if scalars else {})}


def seq(*stmts: Stmt | None) -> Stmt:
    """Return the statements in order with nested sequences flattened; a single statement is returned unchanged."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        elif s is not None:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def bodies(s: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly inside `s`."""
    kind = type(s)
    if kind is Store or kind is Evaluate:
        return ()
    match s:
        case For() | Allocate() | Let() | AttrStmt():
            return (s.body,)
        case Seq():
            return s.stmts
        case IfThenElse():
            return (s.then_case,) if s.else_case is None else (s.then_case, s.else_case)
        case Block():
            return (s.body,) if s.init is None else (s.init, s.body)
        case _:
            return ()


def walk_stmt(s: Stmt) -> Iterator[Stmt]:
    """Yield `s` and every statement inside, outermost first."""
    stack = [s]
    while stack:
        x = stack.pop()
        yield x
        inside = bodies(x)
        if inside:
            stack += inside[::-1]


def path_to(body: Stmt, target: Stmt) -> list[Stmt]:
    """Return the statements of `body` around `target`, outermost first; empty if `target` is not in `body`."""
    path: list[Stmt] = []
    _find(target, body, path)
    return path


def _find(target: Stmt, s: Stmt, path: list[Stmt]) -> bool:
    """Append `s` and the statements inside that are around `target` to `path`; return whether `target` is in `s`."""
    if s is target:
        return True
    path.append(s)
    for b in bodies(s):
        if _find(target, b, path):
            return True
    path.pop()
    return False


def expressions(s: Stmt) -> tuple[PrimExpr, ...]:
    """Return the expressions of `s` itself, without those of the statements inside."""
    match s:
        case For():
            return (s.min, s.extent)
        case IfThenElse():
            return (s.condition,)
        case Store():
            return (*s.indices, s.value) if s.mask is None else (*s.indices, s.value, s.mask)
        case Let() | Evaluate():
            return (s.value,)
        case AttrStmt():
            return (s.value,) if isinstance(s.value, PrimExpr) else ()
        case Block():
            return (*s.bindings, s.predicate)
        case _:
            return ()


def map_bodies(s: Stmt, f: Callable[[Stmt], Stmt | None]) -> Stmt | None:
    """Apply `f` to the statements directly inside `s`; return None if nothing is left."""
    match s:
        case For() | Allocate() | Let() | AttrStmt():
            body = f(s.body)
            return None if body is None else s if body is s.body else _around(s, body)
        case Seq():
            stmts = [f(x) for x in s.stmts]
            if all(a is b for a, b in zip(stmts, s.stmts, strict=True)):
                return s
            kept = [x for x in stmts if x is not None]
            return seq(*kept) if kept else None
        case IfThenElse():
            then, other = f(s.then_case), None if s.else_case is None else f(s.else_case)
            if then is s.then_case and other is s.else_case:
                return s
            if then is None and other is None:
                return None
            return replace(s, then_case=Seq(()) if then is None else then, else_case=other)
        case Block():
            new = f(s.body)
            return None if new is None else s if new is s.body else replace(s, body=new)
        case _:
            return s


def _around(s: For | Allocate | Let | AttrStmt, body: Stmt) -> Stmt:
    """Return `s` around another body."""
    if type(s) is For:
        return For(s.var, s.min, s.extent, s.kind, body, s.annotations, s.origin)
    if type(s) is Allocate:
        return Allocate(s.buffer, body, s.annotations)
    return replace(s, body=body)


def map_expressions(
    s: Stmt, f: Callable[[PrimExpr], PrimExpr], within: Callable[[Stmt], bool] | None = None
) -> Stmt:
    """Apply `f` to every expression of `s` and of the statements inside. `within` tells which statements to change or
    to search."""
    if within is not None and not within(s):
        return s
    # recursion without an inner function, which would be a reference cycle
    match s:
        case Store():
            mask = None if s.mask is None else f(s.mask)
            return Store(s.buffer, f(s.value), tuple(f(i) for i in s.indices), mask)
        case For():
            body = map_expressions(s.body, f, within)
            return For(s.var, f(s.min), f(s.extent), s.kind, body, s.annotations, s.origin)
        case IfThenElse():
            condition, then = f(s.condition), map_expressions(s.then_case, f, within)
            return IfThenElse(
                condition, then, None if s.else_case is None else map_expressions(s.else_case, f, within))
        case Evaluate():
            return Evaluate(f(s.value))
        case Let():
            return Let(s.var, f(s.value), map_expressions(s.body, f, within))
        case AttrStmt():
            value = f(s.value) if isinstance(s.value, PrimExpr) else s.value
            return AttrStmt(s.node, s.attr_key, value, map_expressions(s.body, f, within))
        case Block():
            init = None if s.init is None else map_expressions(s.init, f, within)
            return replace(
                s, bindings=tuple(f(b) for b in s.bindings), predicate=f(s.predicate), init=init,
                body=map_expressions(s.body, f, within))
        case _:
            return map_bodies(s, lambda b: map_expressions(b, f, within)) or s


def substitute_stmt(s: Stmt, mapping: Mapping[Any, PrimExpr]) -> Stmt:
    """Replace variables in all expressions inside `s`."""
    memo: dict[PrimExpr, PrimExpr] = {}
    return map_expressions(s, lambda e: rewrite(e, mapping.get, memo)) if mapping else s


def redirect(
    s: Stmt, old: Buffer, new: Buffer, at: Callable[[tuple[PrimExpr, ...]], tuple[PrimExpr, ...]] = lambda i: i
) -> Stmt:
    """Replace every access `old[i]` in `s` by `new[at(i)]`."""
    memo: dict[PrimExpr, PrimExpr] = {}

    def loads(e: PrimExpr) -> PrimExpr | None:
        return Load(new, at(e.indices)) if isinstance(e, Load) and e.buffer is old else None

    return _redirect_stores(map_expressions(s, lambda e: rewrite(e, loads, memo)), old, new, at)


def _redirect_stores(
    s: Stmt, old: Buffer, new: Buffer, at: Callable[[tuple[PrimExpr, ...]], tuple[PrimExpr, ...]]
) -> Stmt:
    if isinstance(s, Store) and s.buffer is old:
        return replace(s, buffer=new, indices=at(s.indices))
    if isinstance(s, Block) and s.init is not None:
        s = replace(s, init=_redirect_stores(s.init, old, new, at))
    return map_bodies(s, lambda b: _redirect_stores(b, old, new, at)) or s


def replaced(func: PrimFunc, old: Stmt, new: Stmt) -> PrimFunc:
    """Return `func` with the statement `old` replaced by `new`."""
    return func.with_body(_replaced(func.body, old, new, {*path_to(func.body, old)}))


def _replaced(s: Stmt, old: Stmt, new: Stmt, around: Collection[Stmt]) -> Stmt:
    if s is old:
        return new
    return (map_bodies(s, lambda b: _replaced(b, old, new, around)) or s) if s in around else s


def nest(loops: Sequence[For], body: Stmt, fresh: Mapping[Var, Var] | None = None) -> Stmt:
    """Return `body` in copies of `loops`, outermost first; `fresh` are new loop variables."""
    for f in reversed(loops):
        body = replace(f, var=(fresh or {}).get(f.var, f.var), body=body)
    return body


def block_names(func: PrimFunc) -> list[str]:
    """Return the names of the blocks of a schedulable program, in order."""
    return [s.name for s in walk_stmt(func.body) if isinstance(s, Block)]


def stored_buffers(s: Stmt) -> list[Buffer]:
    """Return the buffers that `s` stores to, each once, in order."""
    found: dict[Buffer, None] = {}
    for x in walk_stmt(s):
        if isinstance(x, Store):
            found.setdefault(x.buffer)
        elif isinstance(x, Evaluate):
            found.update(dict.fromkeys(handed_out(x.value, writes=True)))
    return list(found)


def handed_out(e: PrimExpr, *, writes: bool = False) -> list[Buffer]:
    """Return the buffers whose addresses a call passes on; with `writes`, only those that the callee may write."""
    calls = [x for x in walk(e) if isinstance(x, Call) and x.op is address_of]
    return [
        load.buffer for c in calls
        if isinstance(load := c.args[0], Load) and (not writes or number_of(c.args[1]) in (2, 3))]


def loaded_buffers(s: Stmt) -> list[Buffer]:
    """Return the buffers that `s` loads from, each once, in order."""
    found: dict[Buffer, None] = {}
    for x in walk_stmt(s):
        for top in expressions(x):
            found.update({e.buffer: None for e in walk(top) if isinstance(e, Load)})
    return list(found)
