"""Forms of operators and their matches: base of `quantized_forms.py`, `float_forms.py`, and custom forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.backends.accelerators.declared.declaration import Accelerator, Operand, Refused
from tilewright.base.errors import CompileError

if TYPE_CHECKING:
    from tilewright.relay.dataflow_pattern import DFPattern
    from tilewright.relay.expr import Call, Expr, Function

Array = np.ndarray[Any, Any]
UNITS: Final = {"int8": (-128, 127), "uint8": (0, 255)}


@dataclass
class Reading:
    """The reader of a match: the accelerator with its numerics, and the tensor of each expression."""

    accelerator: Accelerator
    numerics: str | None
    tensor: Callable[[Expr], Operand | Array]


class Match:
    """The properties of a match: operands `x` and `y`, `dtype` of the data, and others that depend on the form."""

    def __init__(self, root: Expr, reading: Reading, **attributes: Any) -> None:
        self.root, self.reading, self.numerics = root, reading, reading.numerics
        self.y: Any = reading.tensor(root)
        self.macs = 0
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a match of this form has no {name}; it has {', '.join(sorted(self.__dict__))}", name=name, obj=self)

    @property
    def name(self) -> str:
        """The name of the operator in the model."""
        return self.root.span.name if self.root.span is not None else ""

    def require(self, holds: bool, rule: str, edit: str) -> None:
        """Refuse the match if `holds` is false, with the violated `rule` and the `edit` of the model that satisfies it.
        """
        if not holds:
            raise Refused(rule, edit)


class Form:
    """Base class of forms."""

    def pattern(self) -> DFPattern:
        """Return the pattern for the pattern table."""
        raise NotImplementedError

    def read(self, root: Expr, reading: Reading) -> Match:
        """Return the properties of a match whose last value is `root`. Raises `Refused` if the accelerator does not
        support the match."""
        raise NotImplementedError

    def sample(self, rng: np.random.Generator, accelerator: Accelerator) -> Function:
        """Return a random program of this form; some may be refused by the accelerator."""
        raise CompileError(
            f"{type(self).__name__} has no sample(rng, accelerator), a function of this form, so it cannot be tested; "
            "write one",
            code="TW0903")


# Reading


def tensor_of(e: Expr) -> Operand | Array:
    """Return the tensor of an expression, or the value of a constant. Refuses tensors of dynamic shape."""
    from tilewright.relay.expr import Constant

    if isinstance(e, Constant):
        return e.value
    if not all(isinstance(n, int) for n in e.tensor_type.shape):
        raise Refused(
            f"all sizes are known, and this is {e.tensor_type!r}",
            "give the network's inputs sizes: shapes={'x': (1, 3, 224, 224)}")
    return Operand(e, tuple(int(n) for n in e.tensor_type.shape), str(e.tensor_type.dtype))


def data_of(e: Expr, reading: Reading) -> Operand:
    """Return the tensor of an expression; refuses constants."""
    found = reading.tensor(e)
    if not isinstance(found, Operand):
        raise Refused(
            "the data are computed while the network runs, and here they are a constant",
            "fold constants before the network is partitioned")
    return found


def is_call(e: Expr, name: str) -> bool:
    """Whether an expression is a call of the operator of that name."""
    from tilewright.relay.expr import Call
    from tilewright.relay.op.registry import Op

    return isinstance(e, Call) and isinstance(e.op, Op) and e.op.name == name


def number(e: Any) -> float:
    """Return the value of a scalar constant; refuses other expressions."""
    value = getattr(e, "value", None)
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise Refused(
            "scales and zero points of data are one number", "quantize the data by one scale for the whole tensor")
    return float(value.reshape(()))


def clipped(root: Any) -> tuple[Any, int, int]:
    """Return the operand of a clip, and its bounds; without a clip, the value and the bounds of its dtype."""
    low, high = UNITS.get(str(root.tensor_type.dtype), (0, 0))
    if is_call(root, "clip"):
        return root.args[0], max(low, math.ceil(root.op.a_min)), min(high, math.floor(root.op.a_max))
    return root, low, high


def padded_data(e: Any, layout: str, reading: Reading) -> tuple[Operand, Expr]:
    """Return the data with preceding explicit padding, and the data without it. Refuses padding of another kind."""
    if not is_call(e, "nn.pad"):
        return data_of(e, reading), e
    value = e.args[1] if len(e.args) > 1 else None
    if e.op.pad_mode != "constant":
        raise Refused("padding is by a constant", 'give nn.pad pad_mode="constant"')
    widths = [(int(a), int(b)) for a, b in e.op.pad_width]
    if any(min(w) < 0 for w in widths) or any(any(w) for w, c in zip(widths, layout, strict=True) if c not in "HW"):
        raise Refused("padding is of height and width", "pad batch and channels before the operator, or not at all")
    fill = number(value) if value is not None else 0.0
    return data_of(e.args[0], reading).pad([a for a, _ in widths], [b for _, b in widths], fill), e.args[0]


@dataclass(frozen=True)
class Scaling:
    """The conversion of sums to data: `round(sum * multiplier * 2^(exponent - 31)) + zero` for each output channel,
    rounded as in `rescaled`, or `round(sum * factor) + zero`."""

    zero: int
    multiplier: Array | None = None
    exponent: Array | None = None
    once: int = 0
    factor: Array | None = None

    def attributes(self) -> dict[str, Any]:
        """Return the scaling as properties of a match."""
        if self.factor is not None:
            return {"factor": self.factor, "out_zero": self.zero}
        return {"multiplier": self.multiplier, "exponent": self.exponent, "once": self.once, "out_zero": self.zero}


def scaling_of(requantize: Any, channels: int, reading: Reading, real: bool) -> Scaling:
    """Return the scaling of a requantization for each channel: in fixed point with the accelerator's rounding, or in
    float32 with ties to even.

    Refuses other roundings.
    """
    from tilewright.relay.qnn import numerics as N
    from tilewright.relay.qnn.scaling import Requantize
    from tilewright.relay.qnn.settle_numerics import KNOWN

    rule = KNOWN.get(reading.numerics or "", {}).get(Requantize)
    settled: Any = (rule(requantize) if rule else None) or requantize
    rounding, kind = (
        N.checked(settled.op.rounding, settled.op.compute_dtype) if isinstance(settled.op, Requantize)
        else ("in steps of its own", "other operators")
    )
    if (rounding, kind) not in (
        (("TOEVEN", "float32"),) if real
        else (("TFLITE", "int64"), ("UPWARD", "int64"), ("TFLITE", "int32"), ("UPWARD", "int32"))
    ):
        wanted, numerics = ("float32, halves to the even number", "onnx") if real else ("fixed point", "tflite")
        raise Refused(
            f"sums are scaled in {wanted}, and these are rounded {rounding} in {kind}",
            f'give the network the numerics "{numerics}"')
    _, s, zero, to, out_zero = settled.args
    if any(getattr(p, "value", None) is None for p in (s, zero, to, out_zero)) or zero.value.any():
        raise Refused(
            "scales are constants, and sums have the zero point 0",
            "bind the parameters before the network is partitioned")
    offset = int(number(out_zero))
    if real:
        quotient = np.asarray(s.value, np.float32).ravel() / np.float32(number(to))
        return Scaling(offset, factor=np.broadcast_to(quotient, (channels,)).astype(np.float32))
    m, left, right = N.fixed_points(np.asarray(s.value, np.float64).ravel() / number(to))
    multiplier, exponent = (np.broadcast_to(v, (channels,)).astype(np.int32) for v in (m, left - (right - 31)))
    return Scaling(offset, multiplier, exponent, int(rounding == "UPWARD"))


def require_layout(found: str, reading: Reading) -> None:
    wanted = reading.accelerator.layout
    if found != wanted:
        raise Refused(
            f"images are {wanted}, and this operator has {found}",
            f'run relay.qnn.transform.UnifyLayout("{wanted}"), or relay.transform.ConvertLayout')


def pool_geometry(op: Any, reading: Reading) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
    """Return window, strides and padding (top, left, bottom, right) of a pool. Refuses other layouts, dilation and ceil
    mode."""
    require_layout(op.layout, reading)
    if tuple(op.dilation) != (1, 1) or op.ceil_mode:
        raise Refused(
            "pools have windows without gaps, inside of the padding",
            "give the pool dilation 1, and ceil_mode=False with the padding that it needs")
    p = tuple(int(n) for n in op.padding)
    sides = (*p, *p) if len(p) == 2 else p * 4 if len(p) == 1 else p
    top, left, bottom, right = sides
    (height, width), (down, across) = map(int, op.pool_size), map(int, op.strides)
    return (height, width), (down, across), (top, left, bottom, right)


def sides_of(layout: str, top: int, left: int, bottom: int, right: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the padding before and after each dimension of images."""
    before, after = {"H": top, "W": left}, {"H": bottom, "W": right}
    return [before.get(c, 0) for c in layout], [after.get(c, 0) for c in layout]


def constants(count: int) -> list[DFPattern]:
    """Return `count` patterns of constants."""
    from tilewright.relay.dataflow_pattern import is_constant

    return [is_constant() for _ in range(count)]


def call_below(e: Any, *names: str) -> Call:
    """Follow the first arguments of these operators; return the call of the last one."""
    for name in names[:-1]:
        assert is_call(e, name), name
        e = e.args[0]
    assert is_call(e, names[-1]), names[-1]
    found: Call = e
    return found
