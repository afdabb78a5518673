"""oneDNN: its pattern table, the checks of each row, and the partitioning of a network.

    conv2d | conv2d_transpose | dense, then bias, residual, and relu | clip | tanh | gelu | swish | …      one primitive
    batch_matmul, pools, softmax, layer_norm, elementwise functions, sums and products, concatenate, reshape    one each

A row is named after its anchor. All tensors are float32 of known sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.base.types import TensorType, TupleType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Sequential
from tilewright.relay.dataflow_pattern import DFPattern, WildcardPattern, is_constant, is_op, is_tuple, wildcard
from tilewright.relay.dataflow_pattern.match import Matcher
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.contrib import PatternTable, Refusal, register_partitioner, register_pattern_table
from tilewright.relay.op.registry import Op
from tilewright.relay.qnn.choose_numerics import ChooseNumerics
from tilewright.relay.qnn.settle_numerics import SettleMain
from tilewright.relay.transform.annotate_target import AnnotateTarget
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.external_functions import InlineCompilerFunctionsBoundTo
from tilewright.relay.transform.fold_constant import FoldConstant
from tilewright.relay.transform.fold_explicit_padding import FoldExplicitPadding
from tilewright.relay.transform.fold_scale_axis import FoldScaleAxis
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.merge_compiler_regions import MergeCompilerRegions
from tilewright.relay.transform.merge_composite import MergeComposite
from tilewright.relay.transform.partition_graph import PartitionGraph
from tilewright.relay.transform.simplify_inference import SimplifyInference
from tilewright.relay.visitor import post_order, rewrite, substitute

TARGET: Final = "dnnl"
CONVOLUTIONS: Final = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
TRANSPOSED: Final = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
MAX_POOLS: Final = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
MEAN_POOLS: Final = ("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
GLOBAL_POOLS: Final = ("nn.global_avg_pool2d", "nn.global_max_pool2d")
BINARIES: Final = ("add", "multiply", "subtract", "divide", "maximum", "minimum")
VIEWS: Final = ("reshape", "nn.batch_flatten", "squeeze", "expand_dims", "transpose")
HEAVY: Final = (*CONVOLUTIONS, *TRANSPOSED, "nn.dense", "nn.batch_matmul")
"""Operators that make a subgraph worth offloading."""
UNARY: Final[dict[str, Callable[[Any], tuple[str, float, float]]]] = {
    "nn.relu": lambda op: ("relu", 0.0, 0.0),
    "nn.leaky_relu": lambda op: ("relu", float(op.alpha), 0.0),
    "clip": lambda op: ("clip", float(op.a_min), float(op.a_max)),
    "tanh": lambda op: ("tanh", 0.0, 0.0),
    "sigmoid": lambda op: ("sigmoid", 0.0, 0.0),
    "exp": lambda op: ("exp", 0.0, 0.0),
    "log": lambda op: ("log", 0.0, 0.0),
    "sqrt": lambda op: ("sqrt", 0.0, 0.0),
    "abs": lambda op: ("abs", 0.0, 0.0),
}
"""Elementwise functions: their name in oneDNN, alpha and beta."""


class Activation:
    """An activation composed of several operators: its pattern around `x`, and the required constants."""

    def __init__(self, name: str, x: DFPattern) -> None:
        self.numbers: dict[DFPattern, float] = {}
        self.x = x
        write, self.algorithm, self.alpha, self.beta = ACTIVATIONS[name]
        self.pattern = write(x, self._number)

    def _number(self, value: float) -> DFPattern:
        made = is_constant()
        self.numbers[made] = value
        return made

    def fits(self, found: Mapping[DFPattern, Sequence[Any]]) -> bool:
        """Whether the constants of a match are the required ones."""
        constants = [(found[p][0].value, wanted) for p, wanted in self.numbers.items() if p in found]
        return all(c.size == 1 and math.isclose(float(c.reshape(-1)[0]), wanted, rel_tol=1e-5)
                   for c, wanted in constants)


_Number = Callable[[float], DFPattern]


def _gelu(x: DFPattern, number: _Number) -> DFPattern:
    product = is_op("multiply")
    inner = is_op("erf")(product(x, number(2**-0.5)) | is_op("divide")(x, number(2**0.5)))
    outer, half = is_op("add")(inner, number(1)), number(0.5)
    return product(product(x, outer), half) | product(x, product(outer, half)) | product(product(x, half), outer)


def _swish(x: DFPattern, number: _Number) -> DFPattern:
    return is_op("multiply")(x, is_op("sigmoid")(x))


def _hard_swish(x: DFPattern, number: _Number) -> DFPattern:
    scaled = is_op("add")(is_op("multiply")(x, number(1 / 6)), number(0.5))
    return is_op("multiply")(x, is_op("clip")(scaled).has_attr({"a_min": 0.0, "a_max": 1.0}))


ACTIVATIONS: Final = {"gelu": (_gelu, "gelu", 0.0, 0.0), "swish": (_swish, "swish", 1.0, 0.0),
                      "hard_swish": (_hard_swish, "hard_swish", 1 / 6, 0.5)}
"""The pattern of each; its name in oneDNN, alpha and beta."""


def _any_of(names: Sequence[str]) -> DFPattern:
    found: DFPattern = is_op(names[0])
    for name in names[1:]:
        found = found | is_op(name)
    return found


def _row(name: str, anchor: DFPattern, epilogue: str = "") -> tuple[str, DFPattern, Callable[[Expr], bool | Refusal]]:
    """The row of an anchor with an optional bias, residual and activation, or another elementwise function.

    In a sum of two anchors, one takes the other as its residual: the left one, unless it has other users.
    """
    pattern, activation, residual = anchor, None, wildcard()
    if epilogue and not isinstance(anchor, WildcardPattern):
        pattern = anchor.optional(lambda x: is_op("nn.bias_add")(x, is_constant()) | is_op("add")(x, is_constant()))
    if epilogue in ("sum", "sum from the right"):
        pattern = is_op("add")(pattern, residual) if epilogue == "sum" else is_op("add")(residual, pattern)
    if epilogue in ("sum", "sum from the right", "chain"):
        pattern = pattern.optional(_any_of(tuple(UNARY)))
    elif epilogue:
        activation = Activation(epilogue, pattern if isinstance(anchor, WildcardPattern)
                                else pattern.optional(lambda x: is_op("add")(x, residual)))
        pattern = activation.pattern

    def check(root: Expr) -> bool | Refusal:
        found = Matcher(root).match(pattern, root)
        if found is None:
            return False
        if activation is not None and not activation.fits(found):
            return Refusal(f"the constants of {epilogue} must be "
                           f"{', '.join(f'{n:g}' for n in activation.numbers.values())}",
                           "write the function with these constants")
        first = found[anchor][0]
        other = found.get(residual, [None])[0]
        wrong = next((r for e in (root, first, other) if e is not None and (r := _types(e)) is not None), None)
        if wrong is not None:
            return wrong
        if root.tensor_type.shape != first.tensor_type.shape or other is first:
            return Refusal("the operators after a primitive must keep its shape, and must not use its result twice",
                           "give the other operand of the sum the shape of the first")
        rule = _RULES.get(first.op.name) if isinstance(first, Call) and isinstance(first.op, Op) else None
        return True if rule is None else rule(first)

    return f"{TARGET}.{name}", pattern, check


def _types(value: Expr) -> Refusal | None:
    """The reason why oneDNN does not support a value or its inputs, or None."""
    for e in (*(value.args if isinstance(value, Call) else ()), value):
        kinds = e.known_type()
        for t in kinds.fields if isinstance(kinds, TupleType) else (kinds,):
            if not isinstance(t, TensorType) or not t.is_static:
                return Refusal("all sizes must be known at compile time", "give the symbolic dimensions a size")
            if t.dtype != "float32":
                return Refusal(f"a tensor is {t.dtype}; it must be float32", "cast it to float32")
            if 0 in t.shape or len(t.shape) > 6:
                return Refusal("a tensor must have at least one element, and at most 6 dimensions", "reshape it")
    return None


def _convolution(call: Call) -> bool | Refusal:
    op: Any = call.op
    plain = (sorted(op.data_layout) == sorted({1: "NCW", 2: "NCHW", 3: "NCDHW"}[op.rank])
             and op.out_layout in ("", op.data_layout))
    if not plain or op.blocked:
        return Refusal("the data layout must have only batch, channel and spatial axes, in the result "
                       "too", "convert the layout to NCHW")
    transposed = op.name in TRANSPOSED
    if op.groups > 1 and op.kernel_layout[:2] != ("IO" if transposed else "OI"):
        return Refusal("the kernel layout of a grouped convolution must begin with "
                       "OI", "convert the kernel layout to OIHW")
    if sorted(op.kernel_layout) != sorted({1: "OIW", 2: "OIHW", 3: "OIDHW"}[op.rank]):
        return Refusal("the kernel layout must have only output, input and spatial "
                       "axes", "convert the kernel layout to OIHW")
    if transposed and any(op.output_padding):
        return Refusal("output padding of transposed convolutions is not "
                       "supported", "crop the output instead of padding it")
    return True


def _pool(call: Call) -> bool | Refusal:
    op: Any = call.op
    if sorted(op.layout) != sorted({1: "NCW", 2: "NCHW", 3: "NCDHW"}[op.rank]) or op.out_layout not in ("", op.layout):
        return Refusal("the data layout must have only batch, channel and spatial axes, in the result "
                       "too", "convert the layout to NCHW")
    if getattr(op, "ceil_mode", False) and getattr(op, "count_include_pad", False):
        return Refusal("average pooling with count_include_pad does not support "
                       "ceil_mode", "pad explicitly, with ceil_mode false")
    if any(p >= k for p, k in zip(getattr(op, "padding", ()),
                                  (*getattr(op, "pool_size", ()), *getattr(op, "pool_size", ())), strict=True)):
        return Refusal("the padding must be smaller than the window", "pad explicitly")
    return True


def _binary(call: Call) -> bool | Refusal:
    op: Any = call.op
    a, b = (x.tensor_type.shape for x in call.args)
    if a == call.tensor_type.shape or (b == call.tensor_type.shape
                                       and op.name in ("add", "multiply", "maximum", "minimum")):
        return True
    return Refusal("one operand must have the shape of the result", "broadcast the first operand explicitly")


def _batch_matmul(call: Call) -> bool | Refusal:
    a, b = (x.tensor_type.shape for x in call.args)
    return True if a[0] == b[0] else Refusal("both operands of a matrix product must have the same batch size",
        "broadcast the smaller one explicitly")


def _layer_norm(call: Call) -> bool | Refusal:
    op: Any = call.op
    rank = len(call.tensor_type.shape)
    if op.axis % rank != rank - 1 or rank < 2:
        return Refusal("only the last axis can be normalized", "transpose before and after")
    return True if op.center and op.scale else Refusal("a layer norm must have scale and "
                                                       "shift", "give it ones and zeros")


_RULES: Final[Mapping[str, Callable[[Call], bool | Refusal]]] = {
    **dict.fromkeys((*CONVOLUTIONS, *TRANSPOSED), _convolution),
    **dict.fromkeys((*MAX_POOLS, *MEAN_POOLS, *GLOBAL_POOLS), _pool),
    **dict.fromkeys(BINARIES, _binary), "nn.batch_matmul": _batch_matmul, "nn.layer_norm": _layer_norm,
}


def pattern_table() -> PatternTable:
    """The rows of oneDNN, the widest first."""
    rows: list[tuple[Any, ...]] = []
    for name, ops in (("conv", CONVOLUTIONS), ("conv_transpose", TRANSPOSED), ("dense", ("nn.dense",))):
        rows += [_row(f"{name}_{kind}", _any_of(ops)(wildcard(), is_constant()), kind) for kind in ACTIVATIONS]
        rows += [_row(name, _any_of(ops)(wildcard(), is_constant()), follows)
                 for follows in ("sum", "sum from the right", "chain", "")]
    rows += [_row(kind, wildcard(), kind) for kind in ACTIVATIONS]
    two = wildcard(), wildcard()
    rows += [
        _row("batch_matmul", is_op("nn.batch_matmul")(*two)),
        _row("pool", _any_of((*MAX_POOLS, *MEAN_POOLS, *GLOBAL_POOLS))(wildcard())),
        _row("softmax", _any_of(("nn.softmax", "nn.log_softmax"))(wildcard())),
        _row("layer_norm", is_op("nn.layer_norm")(wildcard(), is_constant(), is_constant())),
        _row("concatenate", is_op("concatenate")(is_tuple(None))),
        _row("binary", _any_of(BINARIES)(*two)),
        _row("bias", is_op("nn.bias_add")(wildcard(), is_constant())),
        _row("eltwise", _any_of(tuple(UNARY))(wildcard())),
        _row("view", _any_of(VIEWS)(wildcard())),
    ]
    return rows


register_pattern_table(TARGET, pattern_table)


def partition_for_dnnl(mod: IRModule, params: Mapping[str, Any] | None = None, mod_name: str = "default",
                       prune: bool = True) -> IRModule:
    """Partition a module: the parts that oneDNN computes become functions of `Compiler="dnnl"`; `params` become
    constants.

    With `prune`, subgraphs without a convolution or matrix product stay with the compiler, which fuses them.
    """
    bound = bind_params(mod, params) if params else mod
    passes = (
        InferType(), ChooseNumerics(), SettleMain(), SimplifyInference(), FoldConstant(), FoldExplicitPadding(),
        FoldScaleAxis(), FoldConstant(), MergeComposite(pattern_table()),
        AnnotateTarget(TARGET), MergeCompilerRegions(), PartitionGraph(mod_name),
    )
    found = Sequential(passes, name="partition_for_dnnl")(bound)
    light = [n for n, f in found.items() if prune and isinstance(f, Function) and f.attrs.get("Compiler") == TARGET
             and not _is_heavy(f)]
    return (InferType()(InlineCompilerFunctionsBoundTo(light)(found).map_functions(_without_composites, Function))
            if light else found)


register_partitioner(TARGET, partition_for_dnnl)


def _is_heavy(function: Function) -> bool:
    return any(isinstance(e, Call) and isinstance(e.op, Op) and e.op.name in HEAVY for e in post_order(function))


def _without_composites(function: Function) -> Function:
    """Inline composite functions outside of functions for other compilers."""
    if "Compiler" in function.attrs:
        return function

    def inline(e: Expr) -> Expr | None:
        if isinstance(e, Call) and isinstance(e.op, Function) and "Composite" in e.op.attrs:
            return substitute(e.op.body, dict(zip(e.op.params, e.args, strict=True)))
        return None

    found = rewrite(function, inline)
    assert isinstance(found, Function)
    return found
