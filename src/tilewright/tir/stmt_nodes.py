"""Statements and functions of TIR, the loop language. The complete grammar:

    stmt ::= For(var, min, extent, kind, body)      kind: serial | parallel | vectorized | unrolled
           | IfThenElse(condition, then_case, else_case?)
           | Store(buffer, value, indices, mask?)
           | Seq(stmts)
           | Allocate(buffer, body, annotations)
           | AllocateConst(buffer, body, annotations, values)
           | While(condition, body)
           | AssertStmt(condition, message, body)
           | Let(var, value, body)
           | AttrStmt(node, attr_key, value, body)  a note of the attribute `attr_key` of `node`
           | Evaluate(call)                          a call with an effect
           | Block(name, iters, bindings, predicate, init?, body)      while it is being scheduled
    func ::= PrimFunc(name, params, body, attrs)     params are buffers, inputs before outputs, and variables

A program is *schedulable* while its stores are in blocks, and *lowered* once blocks are gone (`lower_blocks`). It is
*flat* once every buffer has one dimension and no loop is vectorized or unrolled; code generation takes flat programs. A
block is one computation. Its `iters` range over the whole domain of the computed value; `bindings` map the loops around
it to the point that a trip computes. A block inside another is part of its computation, and uses its axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, overload
from weakref import WeakKeyDictionary, ref

import numpy as np

from tilewright.base.errors import Origin
from tilewright.base.nd import NDArray
from tilewright.base.node import node
from tilewright.base.scriptable import Scriptable
from tilewright.base.types import BOOL, DataType
from tilewright.scalar.expr import Buffer, ExprLike, PrimExpr, Var, as_expr, const
from tilewright.scalar.range import Range
from tilewright.scalar.walk import substitute
from tilewright.tir.constructors import (
    allocation_fields,
    axis_fields,
    block_fields,
    constant_elements,
    constant_fields,
    constant_shape,
    function_fields,
)

if TYPE_CHECKING:
    from tilewright.scalar.buffer_region import BufferRegion

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

    def __setstate__(self, state: tuple[None, Mapping[str, Any]]) -> None:
        """Set the fields that `__getstate__` returned."""
        _fill(self, **state[1])

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    @property
    def block(self) -> Block:
        """The root block of the function with this body, which is no statement of it."""
        return _root_around(self, _ROOTS.get(self) or _Root((), {}))


def _fill(s: object, **fields: Any) -> None:
    """Set fields of a new node, whose class may be frozen."""
    for name, value in fields.items():
        object.__setattr__(s, name, value)


def _init(s: Any, given: dict[str, Any], args: tuple[Any, ...], fields: Mapping[str, Any]) -> None:
    """Set the fields of a new node to its arguments, or else to the values `given`."""
    names = type(s).__match_args__
    wanted = {**given, **dict(zip(names, args, strict=False)), **fields}
    if len(args) > len(names) or wanted.keys() != set(names):
        wrong = sorted(wanted.keys() ^ set(names))
        raise TypeError(f"{type(s).__name__} takes the arguments {', '.join(names)}; wrong are {', '.join(wrong)}")
    _fill(s, **wanted)


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
class While(Stmt):
    """`body` again and again, as long as `condition` holds before it."""

    condition: PrimExpr
    body: Stmt

    def __post_init__(self) -> None:
        if not isinstance(self.condition, PrimExpr):
            _fill(self, condition=as_expr(self.condition))


@node
class AssertStmt(Stmt):
    """`body`, if `condition` holds; else an error with `message`."""

    condition: PrimExpr
    message: str
    body: Stmt

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
            buffer: Buffer = getattr(self.buffer, "buffer", self.buffer)  # of the IR builder: `irb.buffer_ptr(b)`
            _fill(self, buffer=buffer, indices=tuple(as_expr(i) for i in self.indices),
                  value=as_expr(self.value, None if isinstance(self.value, ExprLike) else buffer.dtype))


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
            args, fields = allocation_fields(*args, **fields), {}
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
class AllocateConst(Allocate):
    """Constant memory: `buffer` has the elements of `values`, an array of one dimension in row-major order, and then
    zeros, for the duration of `body`, which does not store to it."""

    values: Any = None

    def __init__(self, *args: Any, **fields: Any) -> None:
        """Make a constant of `buffer`, `body`, `annotations` and `values`, or of TVM's arguments: `buffer_var`,
        `dtype`, `extents`, `data_or_idx`, `body` and `annotations`. Raises `CompileError` for more data than elements.
        """
        if "buffer_var" in fields or len(args) > 4:
            args, fields = constant_fields(*args, **fields), {}
        given = {"annotations": None, **dict(zip(_CONSTANT, args, strict=False)), **fields}
        given["values"] = constant_elements(given["values"], given["buffer"])
        _fill(self, **{**given, "annotations": dict(given["annotations"] or {})})

    def elements(self) -> np.ndarray[Any, Any]:
        """Return all elements in the shape of the buffer. Raises `CompileError` unless its sizes are known."""
        shape = constant_shape(self.buffer)
        found = np.zeros(prod(shape), self.values.dtype)
        found[: self.values.size] = self.values
        return found.reshape(shape)

    @property
    def data(self) -> NDArray:
        """The elements as an array of one dimension."""
        return NDArray(self.values)

    @property
    def irmod_storage_idx(self) -> int | None:
        """The position among the constants of the module, after `ExtractPrimFuncConstants`."""
        found: int | None = self.annotations.get(STORED)
        return found


_CONSTANT: Final = ("buffer", "body", "annotations", "values")
STORED: Final = "irmod_storage_idx"
"""Annotation of constant memory: its position in the attribute `constants` of the module."""


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

    @overload
    def __init__(self, var: Var, extent: PrimExpr, kind: str = "spatial") -> None: ...
    @overload
    def __init__(self, dom: Any, var: Var | str, iter_type: int, thread_tag: str = "", span: Any = None) -> None: ...
    def __init__(self, *args: Any, **fields: Any) -> None:
        """Make an axis, or, from TVM's arguments, one over a range from 0 on."""
        if (args and not isinstance(args[0], Var)) or "iter_type" in fields:
            args, fields = axis_fields(*args, **fields), {}
        _init(self, {"kind": "spatial"}, args, fields)

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
    uncompared_keys: ClassVar = frozenset({"combiner", "own_reads"})
    """The annotation with the reducer follows from the two statements; the other one only numbers what is read."""

    @overload
    def __init__(
        self, name: str, iters: tuple[IterVar, ...], bindings: tuple[PrimExpr, ...], predicate: PrimExpr,
        init: Stmt | None, body: Stmt, annotations: dict[str, Any] | None = None, origin: Origin | None = None
    ) -> None: ...
    @overload
    def __init__(
        self, iter_vars: Sequence[IterVar], reads: Any, writes: Any, name_hint: str, body: Stmt,
        init: Stmt | None = None, alloc_buffers: Sequence[Buffer] | None = None, match_buffers: Any = None,
        annotations: Mapping[str, Any] | None = None, span: Any = None
    ) -> None: ...
    @overload
    def __init__(self, iter_values: Sequence[Any], predicate: Any, block: Block, span: Any = None) -> None: ...
    def __init__(self, *args: Any, **fields: Any) -> None:
        """Make a block. From the arguments of TVM's `Block`, it has no bindings; those of `BlockRealize` give them."""
        if (args and not isinstance(args[0], str)) or not (args or "name" in fields):
            args, fields = block_fields(*args, **fields), {}
        _init(self, {"annotations": None, "origin": None}, args, fields)
        if self.annotations is None:
            _fill(self, annotations={})

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
        """The block itself, which has its bindings, where TVM has a statement of its own for these. If the block is all
        of a function, which needs a root block for its axes or for buffers, the root block."""
        root = None if isinstance(self, RootBlock) else _ROOTS.get(self)
        is_root = root is None or not (self.iters or self.init is not None or root.allocated)
        return self if root is None or is_root else _root_around(self, root)

    @property
    def alloc_buffers(self) -> list[Buffer]:
        """The buffers that the block allocates: none, since the root block allocates those of all blocks."""
        return []

    @property
    def match_buffers(self) -> list[Any]:
        """The views that the block declares: none, since a program accesses the memory behind its views."""
        return []

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


@node
class RootBlock(Block):
    """The block around the whole body of a function with blocks. It is made when a script asks for it: the function has
    its annotations, and the buffers that it allocates, as attributes."""

    allocated: tuple[Buffer, ...] = ()

    uncompared_fields: ClassVar = frozenset({"name", "allocated"})

    @property
    def alloc_buffers(self) -> list[Buffer]:
        return list(self.allocated)


INNER = "intermediates"
"""Attribute of a function with blocks: the buffers of its intermediate values, which its root block allocates."""
ROOT_BLOCK = "root"
"""Name of the block around all others, which has no statement: its annotations are an attribute of the function."""
ROOT_ATTRS = "root_block"
"""Attribute of a function: the annotations of its root block."""
ALIGNED = "buffer_dim_align"
"""Annotation of a block: `((result, dimension, factor, offset), …)`, the required strides of dimensions of its results.
"""
OWN_READS = "own_reads"
"""Annotation of a block with initial values: its text counts its results among what it reads, so steps do, too."""
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
LEGACY = "from_legacy_te_schedule"
"""Attribute of a function: it has the loops of a te schedule, before other passes."""
VERSIONED = "versioned"
"""Attribute of a function: it consists of several versions, of which a call takes one, so each pass over its code
costs several times as much."""


@node
class PrimFunc:
    """A function over memory: `params` are buffers and scalars in the order of the call; `attrs` are for passes and
    printing.

    A scalar is a number or an address. Symbolic dimensions of the buffers are no parameters, unless they are scalars.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: dict[str, Any] = field(default_factory=dict)
    origin: Origin | None = None

    uncompared_fields: ClassVar = frozenset({"name"})
    uncompared_keys: ClassVar = frozenset({
        "argument_names", "global_symbol", "tir.noalias", INNER, LEGACY})
    """Attributes that are the name, tell where the function comes from, or hold for all functions: memory of parameters
    never overlaps. Intermediate buffers are compared where they are used, since their order has no meaning."""

    @overload
    def __init__(
        self, name: str, params: Sequence[Buffer | Var], body: Stmt, attrs: dict[str, Any] | None = None,
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
            args, fields = function_fields(*args, **fields), {}
        elif not args and "name" not in fields:
            args, fields = function_fields(**fields), {}
        _init(self, {"attrs": None, "origin": None}, args, fields)
        if self.attrs is None:
            _fill(self, attrs={})
        if INNER in self.attrs:
            _note_root(self)

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
    def buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are buffers, in order."""
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def scalars(self) -> tuple[Var, ...]:
        """The parameters that are numbers or addresses, in order."""
        return tuple(p for p in self.params if isinstance(p, Var))

    @property
    def buffer_map(self) -> dict[Buffer | Var, Buffer]:
        """The buffers of the parameters. Parameters are buffers themselves, so each is mapped to itself."""
        return {b: b for b in self.buffers}

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> PrimFunc:
        """Return the function with an attribute, or several; `global_symbol` is its name, too."""
        given = {key: value} if isinstance(key, str) else dict(key)
        name = str(given.get("global_symbol", self.name))
        return replace(self, name=name, attrs={**self.attrs, **given})

    def specialize(self, param_map: Mapping[Any, Any]) -> PrimFunc:
        """Return the function for some parameters: numbers or expressions for variables, and buffers with other sizes
        for buffers. Raises `CompileError` for a parameter of another function, and sizes that do not fit."""
        from tilewright.tir.rebuilding import specialize

        return specialize(self, param_map)

    def without_attr(self, key: str) -> PrimFunc:
        """Return the function without an attribute."""
        return replace(self, attrs={k: v for k, v in self.attrs.items() if k != key})


@dataclass(slots=True)
class _Root:
    """The buffers and annotations of the root block around a body, and the block itself while it is in use."""

    allocated: tuple[Buffer, ...]
    annotations: Mapping[str, Any]
    made: ref[RootBlock] | None = None


_ROOTS: Final[WeakKeyDictionary[Stmt, _Root]] = WeakKeyDictionary()
"""The root blocks of functions with blocks, by the bodies of these. Functions that share a body, such as one with a
further attribute, have one root block: that of the last one, if they differ in its annotations."""


def _root_of(func: PrimFunc) -> _Root:
    return _Root(tuple(func.attrs.get(INNER, ())), func.attrs.get(ROOT_ATTRS, {}))


def _note_root(func: PrimFunc) -> None:
    new, known = _root_of(func), _ROOTS.get(func.body)
    if known is None or (known.allocated, known.annotations) != (new.allocated, new.annotations):
        _ROOTS[func.body] = new


def _root_around(body: Stmt, root: _Root) -> RootBlock:
    found = None if root.made is None else root.made()
    if found is None:
        inside = replace(body) if isinstance(body, Block) else body
        found = RootBlock(
            ROOT_BLOCK, (), (), const(1, BOOL), None, inside, dict(root.annotations), allocated=root.allocated)
        root.made = ref(found)
    return found


def root_block(func: PrimFunc) -> RootBlock:
    """Return the block around the whole body of a function; the same one as long as it is in use. Its body is a copy if
    that is a block, too."""
    if isinstance(func.body, RootBlock):
        return func.body
    return _root_around(func.body, _ROOTS.get(func.body) or _root_of(func))


BlockRealize = Block
"""A block has its bindings, so the node that TVM has for them is the block itself."""
