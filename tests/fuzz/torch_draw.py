"""Random PyTorch modules as source: statements over values, drawn with what eager PyTorch accepts.

Half of the statements are calls of the operators of PyTorch's own test database (`op_db`), with its sample inputs; the
others come of the steps below.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F

from fuzz import arrays
from fuzz.outcomes import Draw

LARGEST: Final = 2000
DTYPES: Final = ("float32",) * 10 + (
    "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"
)
SKIPPED: Final = (
    "rand", "normal", "dropout", "bernoulli", "multinomial", "empty", "new_empty", "exponential", "geometric", "cauchy",
    "log_normal", "uniform",
                  "sparse", "complex", "fft", "svd_lowrank", "pca_lowrank", "_segment", "to_sparse", "item",
                  "jiterator", "stft", "__r", "as_strided", "resize")
"""Parts of names of operators that draw numbers, leave memory unwritten, or take tensors that are not dense and
real."""
UNARY: Final = (
    [
        "abs", "neg", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "relu", "floor", "ceil",
        "round", "trunc", "frac", "sign", "erf", "erfc", "log1p", "expm1", "reciprocal", "square", "isnan", "isinf",
        "logical_not", "bitwise_not", "sinh", "cosh", "asinh", "acosh", "atanh", "asin", "acos", "atan", "log2",
        "log10", "exp2", "positive", "signbit", "isfinite", "deg2rad", "sinc", "digamma", "lgamma"
    ]
)
ACTIVATIONS: Final = (
    [
        "relu6", "gelu", "silu", "mish", "hardtanh", "hardswish", "hardsigmoid", "softplus", "softsign", "logsigmoid",
        "elu", "selu", "celu", "leaky_relu", "hardshrink", "softshrink", "tanhshrink"
    ]
)
BINARY: Final = (
    [
        "add", "sub", "mul", "div", "pow", "remainder", "fmod", "atan2", "maximum", "minimum", "fmax", "fmin", "eq",
        "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "hypot", "floor_divide",
        "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "xlogy", "logaddexp", "ldexp"
    ]
)
REDUCTIONS: Final = [
    "sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "any", "all", "std", "var", "logsumexp", "norm",
    "cumsum", "cumprod", "softmax", "log_softmax", "nansum", "median", "count_nonzero"
]
SCOPE: Final = {"torch": torch, "F": F, "nan": float("nan"), "inf": float("inf")}


class Program:
    """A module as it grows: `arrays` are inputs (x…) and buffers (w…), `lines` its statements as names with
    expressions."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.arrays: dict[str, Any] = {}
        self.lines: list[tuple[str, str]] = []
        self.values: dict[str, Any] = {}

    def leaf(self, shape: Sequence[int], dtype: str = "", mood: str = "", stored: float = 0.4) -> str:
        dtype = dtype or self.draw.pick(DTYPES)
        value = arrays.values(self.draw, shape, "float32" if dtype == "bfloat16" else dtype, mood)
        tensor = torch.from_numpy(np.array(value))
        return self.given(tensor.bfloat16() if dtype == "bfloat16" else tensor, stored)

    def given(self, tensor: Any, stored: float = 0.4) -> str:
        name = f"{'w' if self.draw.chance(stored) and self.arrays else 'x'}{len(self.arrays)}"
        self.arrays[name] = self.values[name] = tensor
        return name

    def some(self, kinds: str = "fib", low: int = 0, high: int = 9) -> str:
        """A value of a kind (float, integer, bool) and rank, late ones most often."""
        fitting = [n for n, v in self.values.items() if kind_of(v) in kinds and low <= v.ndim <= high]
        if fitting and self.draw.chance(0.92):
            return str(self.draw.pick(fitting[-5:]))
        names = [d for d in DTYPES if ("f" if "float" in d else "b" if d == "bool" else "i") in kinds]
        return self.leaf(arrays.shape_of(self.draw, low, min(high, max(4, low))), self.draw.pick(names))

    def like(self, name: str) -> str:
        """A value that broadcasts with another."""
        v = self.values[name]
        fitting = [n for n, o in self.values.items() if o.dtype == v.dtype and broadcasts(o.shape, v.shape)]
        if self.draw.chance(0.5):
            return str(self.draw.pick(fitting))
        shape = [d if self.draw.chance(0.6) else 1 for d in v.shape]
        dtype = str(v.dtype).removeprefix("torch.") if self.draw.chance(0.85) else self.draw.pick(DTYPES)
        return self.leaf(shape[self.draw.random.randrange(len(shape) + 1):], dtype)

    def axis(self, name: str) -> int:
        rank = self.values[name].ndim
        return self.draw.between(-rank, rank - 1) if rank else 0

    def add(self, expression: str) -> str:
        """A statement with its name; empty where eager PyTorch refuses it or its result is of no use."""
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            try:
                made = eval(expression, dict(SCOPE), dict(self.values))
            except Exception:  # it raises many kinds
                return ""
        if isinstance(made, (tuple, list)) and made and all(isinstance(m, torch.Tensor) for m in made):
            expression, made = f"({expression})[0]", made[0]
        if not isinstance(
            made, torch.Tensor
        ) or made.numel() > LARGEST or made.dtype.is_complex or made.layout is not torch.strided:
            return ""
        # which eager PyTorch neither compares nor tests for infinity
        if made.dtype.is_floating_point and made.dtype.itemsize == 1:
            return ""
        if made.is_floating_point() and made.numel() and not bool(
            torch.isfinite(made).all()
        ) and not self.draw.chance(0.25):
            return ""
        name = f"v{len(self.values)}"
        self.values[name] = made
        self.lines.append((name, expression))
        return name


def kind_of(v: Any) -> str:
    return "f" if v.is_floating_point() else "b" if v.dtype is torch.bool else "i"


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return bool(torch.Size(torch.broadcast_shapes(a, b)).numel() <= LARGEST)
    except RuntimeError:
        return False


# Operators of the database.


@functools.cache
def database() -> tuple[Any, ...]:
    """The operators of PyTorch's tests that can be compared."""
    from torch.testing._internal.common_methods_invocations import op_db

    return tuple(o for o in op_db if not any(s in o.name for s in SKIPPED) and name_of(o))


def name_of(op: Any) -> str:
    """How an operator is called in source; empty where there is no such name."""
    name = op.name.split(".variant")[0]
    owner: Any = torch
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return f"torch.{name}" if callable(owner) else f"torch.Tensor.{name}" if hasattr(torch.Tensor, name) else ""


def listed(p: Program) -> None:
    """A call of an operator of the database on a sample of its inputs."""
    op = p.draw.pick(database())
    dtype = torch.float32 if p.draw.chance(0.8) else p.draw.pick(
        (torch.int64, torch.int32, torch.float16, torch.uint8, torch.bool)
    )
    torch.manual_seed(p.draw.random.randrange(1 << 30))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = [s for s, _ in zip(op.sample_inputs("cpu", dtype), range(40), strict=False)]
    except Exception:  # types that the operator does not have
        return
    if not samples:
        return
    sample = p.draw.pick(samples)
    texts = [argument(p, a) for a in (sample.input, *sample.args)] + [
        f"{k}={argument(p, v)}" for k, v in sample.kwargs.items()
    ]
    if all("?" not in t for t in texts):
        p.add(f"{name_of(op)}({', '.join(texts)})")


def argument(p: Program, a: Any) -> str:
    """An argument as source; a text with "?" for what has none."""
    if isinstance(a, torch.Tensor):
        if a.layout is not torch.strided or a.dtype.is_complex or a.numel() > LARGEST:
            return "?"
        plain = a.detach().clone()
        if plain.is_floating_point() and p.draw.chance(0.1):
            plain = torch.from_numpy(arrays.values(p.draw, tuple(plain.shape), "float32", "special")).to(plain.dtype)
        return p.given(plain)
    if isinstance(a, (list, tuple)):
        inner = ", ".join(argument(p, v) for v in a)
        return f"[{inner}]" if isinstance(a, list) else f"({inner}{',' if len(a) == 1 else ''})"
    if a is None or isinstance(a, (bool, int, float, str, torch.dtype)):
        return repr(a)
    return "?"


# Steps.


def unary(p: Program) -> None:
    a = p.some()
    p.add(f"torch.{p.draw.pick(UNARY)}({a})" if p.draw.chance(0.65) else f"F.{p.draw.pick(ACTIVATIONS)}({a})")


def binary(p: Program) -> None:
    op = p.draw.pick(BINARY)
    a = p.some()
    b = p.like(a) if p.draw.chance(0.7) else repr(p.draw.pick((2, -1, 0.5, 3, True, 0)))
    more = p.draw.pick(
        (", rounding_mode='floor'", ", rounding_mode='trunc'", "")
    ) if op == "div" else ", alpha=2" if op in ("add", "sub") and p.draw.chance(0.2) else ""
    p.add(f"torch.{op}({a}, {b}{more})")


def ternary(p: Program) -> None:
    a = p.some()
    match p.draw.between(0, 4):
        case 0:
            p.add(f"torch.where({p.some('b')}, {a}, {p.like(a)})")
        case 1:
            p.add(f"torch.clamp({a}, {p.draw.pick((-1, 0, 0.5, None))}, {p.draw.pick((1, 2, 0.25, None))})")
        case 2:
            p.add(f"torch.addcmul({a}, {p.like(a)}, {p.like(a)}, value={p.draw.pick((1, 2, 0.5))})")
        case 3:
            p.add(f"torch.lerp({a}, {p.like(a)}, {p.draw.pick((0.3, 1.5))})")
        case _:
            p.add(f"{a}.masked_fill({a} > {p.draw.pick((0, 1))}, {p.draw.pick((0, -1, 0.5))})")


def reduction(p: Program) -> None:
    op, a = p.draw.pick(REDUCTIONS), p.some(low=0)
    if op in ("cumsum", "cumprod", "softmax", "log_softmax"):
        p.add(f"torch.{op}({a}, {p.axis(a)})")
    elif p.draw.chance(0.2):
        p.add(f"torch.{op}({a})")
    else:
        keep = ", keepdim=True" if p.draw.chance(0.4) and op != "count_nonzero" else ""
        dim = p.axis(a) if op in ("argmax", "argmin", "median", "prod") or p.draw.chance(0.6) else tuple(
            {p.axis(a) % max(1, p.values[a].ndim) for _ in range(2)}
        )
        p.add(f"torch.{op}({a}, dim={dim}{keep})")


def shape(p: Program) -> None:
    a = p.some(low=1)
    v, axis = p.values[a], p.axis(a)
    n = int(v.shape[axis])
    sizes = [*v.shape]
    p.draw.random.shuffle(sizes)
    axes = p.draw.random.sample(range(v.ndim), v.ndim)
    expressions = [
        f"{a}.reshape({(*sizes,)})", f"{a}.flatten({p.draw.between(0, v.ndim - 1)})", f"{a}.permute({(*axes,)})",
        f"{a}.transpose({p.axis(a)}, {p.axis(a)})",
        f"{a}.unsqueeze({axis})", f"{a}.squeeze()", f"{a}.squeeze({axis})",
        f"{a}.narrow({axis}, {n // 2}, {max(0, n - n // 2)})", f"torch.flip({a}, ({axis},))",
        f"torch.roll({a}, {p.draw.between(-3, 3)}, {axis})",
        f"{a}.repeat({(*(p.draw.pick((0, 1, 2)) if p.draw.chance(0.5) else 1 for _ in sizes),)})",
        f"{a}.expand({(2, *v.shape)})", f"{a}[..., ::{p.draw.between(1, 3)}]", f"{a}[{p.draw.pick((0, -1))}]",
        f"torch.cat([{a}, {a}], {axis})",
        f"torch.stack([{a}, {a}], {axis})", f"torch.chunk({a}, {p.draw.between(1, 3)}, {axis})",
        f"{a}.unfold({axis}, {p.draw.between(1, max(1, n))}, {p.draw.between(1, 2)})",
        f"torch.tril({a}, {p.draw.between(-2, 2)})", f"torch.triu({a}, {p.draw.between(-2, 2)})",
        f"{a}.movedim({p.axis(a)}, {p.axis(a)})",
        f"torch.repeat_interleave({a}, {p.draw.between(0, 3)}, {axis})", f"{a}.select({axis}, {p.draw.pick((0, -1))})",
        f"torch.diff({a}, dim={axis})",
        f"F.pad({a}, ({p.draw.between(-1, 2)}, {p.draw.between(-1, 2)}), value={p.draw.pick((0, 1))})",
        f"{a}.new_zeros({(*sizes,)}) + 1", f"torch.diagonal({a})",
    ]
    p.add(p.draw.pick(expressions))


def convert(p: Program) -> None:
    a, to = p.some(), p.draw.pick(DTYPES)
    p.add(f"{a}.to(torch.{to})")


def index(p: Program) -> None:
    a = p.some(low=1)
    v, axis = p.values[a], p.axis(a)
    n = int(v.shape[axis])
    if not n:
        return
    i = p.given(torch.from_numpy(p.draw.numbers.integers(0, n, (p.draw.between(0, 3),))), 0.4)
    full = p.given(torch.from_numpy(p.draw.numbers.integers(0, n, tuple(v.shape))), 0.4) if v.numel() else i
    k = p.draw.between(0, n)
    p.add(p.draw.pick([
        f"torch.index_select({a}, {axis}, {i})", f"torch.gather({a}, {axis}, {full})",
        f"{a}.scatter({axis}, {full}, {p.draw.pick((0, 2))})",
        f"{a}.scatter_add({axis}, {full}, {a})", f"torch.topk({a}, {k}, {axis})",
        f"torch.sort({a}, {axis}, stable=True)", f"{a}[{i}]", f"torch.argsort({a}, {axis}, stable=True)",
        f"{a}.index_add({axis}, {i}, {a}.index_select({axis}, {i}))", f"torch.take({a}, {i})",
        f"torch.searchsorted({a}.sort().values, {a})",
        f"torch.index_fill({a}, {axis}, {i}, 1)",
    ]))


def product(p: Program) -> None:
    a = p.some("f", 1)
    v = p.values[a]
    dtype, depth, n = str(v.dtype).removeprefix("torch."), int(v.shape[-1]), p.draw.between(1, 6)
    match p.draw.between(0, 4):
        case 0 | 1:
            w = p.leaf((n, depth), dtype, stored=0.9)
            p.add(f"F.linear({a}, {w}{', ' + p.leaf((n,), dtype, stored=0.9) if p.draw.chance(0.6) else ''})")
        case 2:
            p.add(f"torch.matmul({a}, {p.leaf((depth, n) if p.draw.chance(0.8) else (depth,), dtype)})")
        case 3:
            p.add(f"torch.einsum('...i,ji->...j', {a}, {p.leaf((n, depth), dtype)})")
        case _:
            p.add(
                f"F.layer_norm({a}, ({depth},), {p.leaf((depth,), dtype)}, {p.leaf((depth,), dtype)}, "
                f"{p.draw.pick((1e-5, 0.1))})"
            )


def image(p: Program) -> str:
    fitting = [n for n, v in p.values.items() if v.ndim in (3, 4) and v.dtype is torch.float32 and min(v.shape) > 0]
    if fitting and p.draw.chance(0.6):
        return str(p.draw.pick(fitting))
    return p.leaf(
        (p.draw.between(1, 2), p.draw.pick((1, 2, 3, 4)), *(p.draw.between(1, 7) for _ in range(p.draw.between(1, 2)))),
        "float32"
    )


def picture(p: Program) -> None:
    a = image(p)
    v = p.values[a]
    n, channels = v.ndim - 2, int(v.shape[1])
    k = [p.draw.between(1, 3) for _ in range(n)]
    stride, padding, dilation = p.draw.between(1, 3), p.draw.between(0, 1), p.draw.between(1, 2)
    size = tuple(p.draw.between(1, 8) for _ in range(n))
    linear = ("linear", "bilinear")[n - 1]
    match p.draw.between(0, 6):
        case 0 | 1:
            groups = p.draw.pick([g for g in range(1, channels + 1) if channels % g == 0])
            w = p.leaf((groups * p.draw.between(1, 3), channels // groups, *k), "float32", stored=0.9)
            p.add(f"F.conv{n}d({a}, {w}, None, {stride}, {padding}, {dilation}, {groups})")
        case 2:
            w = p.leaf((channels, p.draw.between(1, 3), *k), "float32", stored=0.9)
            p.add(f"F.conv_transpose{n}d({a}, {w}, None, {stride}, {padding})")
        case 3:
            p.add(f"F.max_pool{n}d({a}, {k}, {stride}, {padding if min(k) > 1 else 0}, ceil_mode={p.draw.chance(0.3)})")
        case 4:
            p.add(
                f"F.avg_pool{n}d({a}, {k}, {stride}, {padding if min(k) > 1 else 0}, {p.draw.chance(0.3)}, "
                f"{p.draw.chance(0.5)})"
            )
        case 5:
            mode = p.draw.pick(("nearest", "nearest-exact", linear, *(["bicubic"] if n == 2 else []), "area"))
            align = f", align_corners={p.draw.chance(0.5)}" if mode in (linear, "bicubic") else ""
            how = f"size={size}" if p.draw.chance(0.5) else f"scale_factor={p.draw.pick((0.5, 2.0, 1.5, 0.7))}"
            p.add(f"F.interpolate({a}, {how}, mode={mode!r}{align})")
        case _:
            p.add(p.draw.pick((
                f"F.adaptive_avg_pool{n}d({a}, {size})", f"F.adaptive_max_pool{n}d({a}, {size})",
                f"F.instance_norm({a})", f"F.group_norm({a}, 1)",
                               f"F.normalize({a}, dim={p.axis(a)})", f"F.local_response_norm({a}, 2)",
                               f"F.pad({a}, (1,) * {2 * n}, mode='replicate')")))


STEPS: Final[tuple[Callable[[Program], None], ...]] = (
    unary, unary, unary, binary, binary, binary, ternary, reduction, reduction, shape, shape, shape, convert, index,
    product, picture, picture, listed, listed, listed, listed, listed,
)


def drawn(draw: Draw) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """The arrays and statements of a module."""
    p = Program(draw)
    p.leaf(arrays.shape_of(draw, 1, 4), "float32" if draw.chance(0.7) else "", stored=0.0)
    length = draw.pick((1, 1, 2, 3, 4, 6))
    for _ in range(25):
        draw.pick(STEPS)(p)
        if len(p.lines) >= length:
            break
    if not p.lines:
        p.add("x0 + 0")
    read = " ".join(e for _, e in p.lines)
    return {n: v for n, v in p.arrays.items() if n in read or n == "x0"}, tuple(p.lines)


