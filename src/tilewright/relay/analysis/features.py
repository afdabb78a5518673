"""The language features that a program uses, and its number of multiply-accumulates."""

from __future__ import annotations

import enum
import math
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.adt import Constructor, Match
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.scopes import Scopes
from tilewright.relay.visitor import operands, post_order


class Feature(enum.IntEnum):
    """The language features, with TVM's numbers."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15
    fLetRec = 16


_FEATURES: Final = {
    Var: Feature.fVar, GlobalVar: Feature.fGlobalVar, Constant: Feature.fConstant, Tuple: Feature.fTuple,
    TupleGetItem: Feature.fTupleGetItem,
    Function: Feature.fFunction, Call: Feature.fCall, Let: Feature.fLet, If: Feature.fIf, RefCreate: Feature.fRefCreate,
    RefRead: Feature.fRefRead,
    RefWrite: Feature.fRefWrite, Constructor: Feature.fConstructor, Match: Feature.fMatch,
}
_ATOMS: Final = (Var, GlobalVar, Constant, Constructor)


def detect_feature(a: Expr | IRModule, b: Expr | IRModule | None = None) -> set[Feature]:
    """Return the language features that an expression or a module uses; both may be given, in either order, as in TVM.
    """
    what = a if isinstance(a, IRModule) or b is None else b if isinstance(b, IRModule) else a
    roots: list[Any] = [f for _, f in what.items() if isinstance(f, Expr)] if isinstance(what, IRModule) else [what]
    if what is not a:
        roots.append(a)
    found: set[Feature] = set()
    for root in roots:
        uses: dict[Expr, int] = {}
        for e in post_order(root):
            found.add(_FEATURES[type(e)])
            if isinstance(e, Call) and not isinstance(e.op, Expr):
                found.add(Feature.fOp)
            if isinstance(e, Let) and e.var in post_order(e.value):
                found.add(Feature.fLetRec)
            for o in operands(e):
                uses[o] = uses.get(o, 0) + 1
        if any(n > 1 and not isinstance(e, _ATOMS) for e, n in uses.items()):
            found.add(Feature.fGraph)
    return found


def check_basic_block_normal_form(expr: Expr) -> bool:
    """Return whether every value used in several scopes has a name."""
    return not Scopes(expr).hoisted


def get_total_mac_number(expr: Expr) -> int:
    """Return the multiply-accumulates of the convolutions and products below `expr`.

    As in TVM, each element of the result of a transposed convolution counts as one whole kernel, although strides leave
    some of its products out; `mac_number` has the products that are computed. Raises `CompileError` for an unknown
    size.
    """
    return sum(_whole_kernels(e) or mac_number(e) for e in post_order(expr) if isinstance(e, Call))


def _whole_kernels(call: Call) -> int:
    """Return the elements of the result of a transposed convolution times those of its kernel; 0 for other calls."""
    if isinstance(call.op, Expr) or _REDUCED.get(call.op.name) is not _transposed_reduction:
        return 0
    groups = int(call.op.attributes().get("groups") or 1)
    return math.prod(_shape(call)) * (_conv_reduction(call) // groups)


def mac_number(call: Call) -> int:
    """Return the multiply-accumulates of a call; 0 for other operators than convolutions and products.

    Raises `CompileError` for an unknown size.
    """
    count = None if isinstance(call.op, Expr) else _REDUCED.get(f"nn.{call.op.name[4:]}"
        if call.op.name.startswith("qnn.") else call.op.name)
    return 0 if count is None else int(math.prod(_shape(call)) * count(call))


def known_mac_number(call: Call) -> int:
    """Return the multiply-accumulates of a call; 0 if a size is unknown."""
    try:
        return mac_number(call)
    except CompileError:
        return 0


def _conv_reduction(call: Call) -> int:
    """Return the number of products per output element of a convolution: the kernel's size without its output channels.
    """
    weight = _shape(call.args[1])
    out = call.op.attributes().get("channels") or 0
    layout = call.op.attributes().get("kernel_layout") or ""
    known = weight[layout.index("O")] if "O" in layout and len(layout) == len(weight) else out or weight[0]
    return math.prod(weight) // max(1, known)


def _dense_reduction(call: Call) -> int:
    return _shape(call.args[0])[-1]


def _matmul_reduction(call: Call) -> int:
    return _shape(call.args[0])[-2 if call.op.attributes().get("transpose_a") else -1]


def _transposed_reduction(call: Call) -> float:
    """Return the average number of products per output element of a transposed convolution."""
    data, weight = _shape(call.args[0]), _shape(call.args[1])
    layout = call.op.attributes().get("kernel_layout") or ""
    known = weight[layout.index("I")] if "I" in layout and len(layout) == len(weight) else weight[0]
    return math.prod(data) * (math.prod(weight) // max(1, known)) / max(1, math.prod(_shape(call)))


def _attention_reduction(call: Call) -> float:
    """Return the length of the sums of both products over all keys, including those that a causal mask hides."""
    size, width = (call.op.attributes()[name] for name in ("size", "width"))
    return _shape(call.args[1])[1] * (int(size) + int(width)) / int(width)


_REDUCED: Final[dict[str, Any]] = {
    "nn.conv1d": _conv_reduction, "nn.conv2d": _conv_reduction, "nn.conv3d": _conv_reduction,
    "nn.dense": _dense_reduction,
    "nn.matmul": _matmul_reduction, "nn.batch_matmul": _matmul_reduction, "nn.attention": _attention_reduction,
    **dict.fromkeys(("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"), _transposed_reduction),
}


def _shape(e: Expr) -> tuple[int, ...]:
    found = e.checked_type
    if not isinstance(found, TensorType):
        raise CompileError(f"a tensor is expected, not {found!r}", e.span, code="TW0311")
    return found.concrete_shape
