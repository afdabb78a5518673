"""Networks that an accelerator takes whole, each with one thing changed, and what somebody who knows the accelerator
would name as the cause.

Written from the documentation, without a look at how reports are made: `families()` are chosen by hand, and a `Cause`
is what the change was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.relay.op.contrib import get_pattern_table

Expr = Any
Rng = np.random.Generator


@dataclass(frozen=True)
class Cause:
    """The operator that is to blame, the kinds of reason that are right, and words of which the record has one (regular
    expressions)."""

    operator: str
    kinds: tuple[str, ...]
    words: str
    editable: bool = True  # somebody would expect that a program makes the edit
    saved: str = ""  # the operator that the edit is to bring back, where it is another


@dataclass(frozen=True)
class Case:
    family: str
    target: str
    base: Expr
    changed: Expr
    cause: Cause
    tables: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Verdict:
    case: Case
    named: bool
    edited: bool | None  # None: nothing that a program can make, and none was to be expected
    told: str


def explain(case: Case, mod: Any) -> Any:
    return relay.analysis.explain_offload(mod, case.target, tables=case.tables)


def module(expr: Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(expr)


def names(record: Any, cause: Cause) -> bool:
    text = " ; ".join(
        (record.why, record.expected, record.found, *record.more, record.edit.text if record.edit else "")
    )
    return record.operator == cause.operator and record.kind in cause.kinds and re.search(cause.words, text) is not None


def given(expr: Expr, needs: Sequence[str]) -> dict[str, Any]:
    """Values for the inputs that an edit asks for."""
    types = {v.name_hint: v.tensor_type for v in relay.analysis.free_vars(expr)}
    return {
        name: np.full(
            [int(n) for n in types[name].shape], 0.07 if types[name].dtype.is_float else 3, types[name].dtype
        ) for name in needs
    }


def judge(case: Case) -> Verdict:
    report = explain(case, module(case.changed))
    left = [record for record in report.left if record.operator == case.cause.operator]
    if not left:
        raise AssertionError(f"{case.family}: the change keeps {case.cause.operator} off-loaded\n{report}")
    right = [record for record in left if names(record, case.cause)]
    told = str(report)
    record = (right or left)[0]
    can = record.edit is not None and (record.edit.can_apply or bool(record.edit.needs))
    if not can:
        return Verdict(case, bool(right), False if case.cause.editable else None, told)
    edited = record.apply(params=given(case.changed, record.edit.needs))
    after = explain(case, edited)
    before, now = (
        sum(taken.operator == (case.cause.saved or case.cause.operator) for taken in r.taken) for r in (report, after)
    )
    good = now > before  # what escapes is computed once more, by the processor
    return Verdict(case, bool(right), good, told if good else f"{told}\nafter the edit:\n{after}")


# ------------------------------------------------------------------ quantized networks, as Unify leaves them


def scale(value: float) -> Expr:
    return relay.const(np.float32(value))


def zero(value: int) -> Expr:
    return relay.const(np.int32(value))


def ints(rng: Rng, shape: Sequence[int], dtype: str = "int8") -> Expr:
    return relay.Constant(rng.integers(-60, 60, shape).astype(dtype))


@dataclass
class Quantized:
    """A block of a quantized network, whose knobs the families turn."""

    rng: Rng
    dtype: str = "int8"
    size: int = 12
    cin: int = 8
    cout: int = 16
    batch: int = 1
    kernel: int = 3
    rank: int = 4

    def image(self, name: str = "x", **over: Any) -> Expr:
        shape = (over.get("batch", self.batch), self.size, self.size, over.get("cin", self.cin))
        return relay.var(name, shape=shape, dtype=over.get("dtype", self.dtype))

    def conv(self, x: Expr, **over: Any) -> Expr:
        rng, k, cout = self.rng, self.kernel, over.get("cout", self.cout)
        attrs: dict[str, Any] = {
            "kernel_size": (k, k), "channels": cout, "data_layout": "NHWC", "kernel_layout": "HWIO",
            "out_dtype": "int32"
        }
        attrs |= over.get("attrs", {})
        weight = over.get("weight") or ints(rng, (k, k, self.cin // attrs.get("groups", 1), cout))
        y = relay.qnn.op.conv2d(
            x, weight, over.get("in_zero", zero(3)), over.get("weight_zero", zero(0)),
            over.get("in_scale", scale(0.05)), over.get("weight_scale", scale(0.01)), **attrs
        )
        y = over.get("after_conv", lambda v: v)(y)
        if over.get("bias", True):
            axis = 1 if attrs["data_layout"] == "NCHW" else 3
            value = over.get("bias_value") or relay.const(rng.integers(-500, 500, cout).astype("int32"))
            y = relay.nn.bias_add(y, value, axis=axis)
        return self.finish(over.get("after_bias", lambda v: v)(y), **over)

    def finish(self, y: Expr, **over: Any) -> Expr:
        y = relay.qnn.op.requantize(
            y, scale(0.0005), zero(0), over.get("out_scale", scale(0.07)), over.get("out_zero", zero(-4)),
            axis=over.get("axis", 3), out_dtype=over.get("out_dtype", self.dtype)
        )
        y = over.get("after_requantize", lambda v: v)(y)
        return relay.clip(y, a_min=-4.0, a_max=90.0) if over.get("clip") else y

    def dense(self, x: Expr, **over: Any) -> Expr:
        rng, units = self.rng, self.cout
        weight = over.get("weight") or ints(rng, (units, self.cin))
        y = relay.qnn.op.dense(
            x, weight, over.get("in_zero", zero(3)), zero(0), scale(0.05), over.get("weight_scale", scale(0.01)),
            units=units, out_dtype="int32"
        )
        y = over.get("after_conv", lambda v: v)(y)
        if over.get("bias", True):
            y = relay.nn.bias_add(
                y, over.get("bias_value") or relay.const(rng.integers(-500, 500, units).astype("int32")), axis=1
            )
        return self.finish(over.get("after_bias", lambda v: v)(y), **{"axis": 1, **over})

    def rows(self, **over: Any) -> Expr:
        return relay.var("x", shape=(1, self.cin), dtype=over.get("dtype", self.dtype))

    def add(self, a: Expr, b: Expr, **over: Any) -> Expr:
        return relay.qnn.op.add(
            a, b, over.get("a_scale", scale(0.05)), over.get("a_zero", zero(3)), scale(0.04), zero(-3), scale(0.08),
            over.get("out_zero", zero(1))
        )


def random_block(rng: Rng, dtype: str = "int8") -> Quantized:
    return Quantized(
        rng, dtype, size=int(rng.choice([8, 10, 12])), cin=int(rng.choice([4, 8])), cout=int(rng.choice([8, 16]))
    )


Family = Callable[[Rng], Case]
FAMILIES: dict[str, Family] = {}


def family(make: Callable[..., Case], name: str, *arguments: Any) -> None:
    FAMILIES[name] = lambda rng: make(name, rng, *arguments)


def rows_only(target: str) -> Mapping[str, Any]:
    return {target: get_pattern_table(target)}


def change_conv(
    name: str, rng: Rng, target: str, over: Callable[[Quantized], dict[str, Any]], cause: Cause, rows: bool,
    knobs: Mapping[str, Any] = {}
) -> Case:
    q = random_block(rng)
    for knob, value in knobs.items():
        setattr(q, knob, value)
    extra = over(q)
    outer = extra.pop("wrap", lambda y: y)
    image = extra.pop("image", {})
    fixed = {"clip": bool(rng.integers(2))} if not extra.pop("no_clip", False) else {}
    base, changed = q.conv(q.image(), **fixed), outer(q.conv(q.image(**image), **{**fixed, **extra}))
    return Case(name, target, base, changed, cause, rows_only(target) if rows else None)


def change_dense(
    name: str, rng: Rng, target: str, over: Callable[[Quantized], dict[str, Any]], cause: Cause, rows: bool
) -> Case:
    q = random_block(rng)
    extra = over(q)
    return Case(
        name, target, q.dense(q.rows()), q.dense(q.rows(**extra), **extra), cause, rows_only(target) if rows else None
    )


def variable_weight(q: Quantized) -> dict[str, Any]:
    shape = (3, 3, q.cin, q.cout)
    return {"weight": relay.var("w", shape=shape, dtype="int8")}


def quantized_weight(q: Quantized) -> dict[str, Any]:
    real = relay.const(q.rng.standard_normal((3, 3, q.cin, q.cout)).astype("float32"))
    return {"weight": relay.qnn.op.quantize(real, scale(0.01), zero(0), out_dtype="int8", axis=3)}


def cast_weight(q: Quantized) -> dict[str, Any]:
    return {"weight": relay.cast(ints(q.rng, (3, 3, q.cin, q.cout), "int32"), dtype="int8")}


def transposed_weight(q: Quantized) -> dict[str, Any]:
    return {"weight": relay.transpose(ints(q.rng, (q.cout, 3, 3, q.cin)), axes=[1, 2, 3, 0])}


def scalar(name: str, dtype: str, key: str, value: float) -> Callable[[Quantized], dict[str, Any]]:
    return lambda q: {key: relay.var(name, shape=(), dtype=dtype)}


def escaping(where: str) -> Callable[[Quantized], dict[str, Any]]:
    def over(q: Quantized) -> dict[str, Any]:
        kept: list[Expr] = []

        def keep(y: Expr) -> Expr:
            kept.append(y)
            return y

        return {where: keep, "wrap": lambda y: relay.Tuple([y, relay.exp(relay.cast(kept[0], dtype="float32"))])}

    return over


def attrs(**values: Any) -> Callable[[Quantized], dict[str, Any]]:
    return lambda q: {"attrs": values}


def between(where: str, op: Callable[[Expr], Expr]) -> Callable[[Quantized], dict[str, Any]]:
    return lambda q: {where: op}


CONV, EXTRA = "qnn.conv2d", ("extra", "operator", "other")
LIMIT, CONSTANT, ESCAPE = ("attribute", "check", "support"), ("constant",), ("escape",)
TYPE = ("dtype", "type", "check", "attribute", "support")


def turned(y: Expr) -> Expr:
    return relay.transpose(y, axes=[0, 2, 1, 3])


def conv_families(target: str) -> None:
    """What can be wrong with a convolution of bytes, for every target that has a row for one."""
    for label, where, op, word in (
        ("relu before requantize", "after_bias", relay.nn.relu, r"nn\.relu"),
        ("relu before the bias", "after_conv", relay.nn.relu, r"nn\.relu"),
        (
            "cast before requantize", "after_bias", lambda y: relay.cast(relay.cast(y, dtype="int64"), dtype="int32"),
            r"cast"
        ),
        ("transpose before requantize", "after_bias", turned, r"transpose"),
        ("clip before requantize", "after_bias", lambda y: relay.clip(y, a_min=0.0, a_max=9000.0), r"clip"),
        ("negation before the bias", "after_conv", relay.negative, r"negative"),
    ):
        family(change_conv, f"{target}: {label}", target, between(where, op), Cause(CONV, EXTRA, word), True)
    for label, where, word in (("sums", "after_conv", CONV), ("biased sums", "after_bias", r"nn\.bias_add")):
        family(change_conv, f"{target}: {label} used outside", target, escaping(where), Cause(CONV, ESCAPE, word), True)
    for label, over, word in (
        ("weight is an input", variable_weight, r"\bw\b|constant"),
        ("weight quantized in the graph", quantized_weight, r"qnn\.quantize"),
        ("weight cast in the graph", cast_weight, r"cast"),
        ("weight transposed in the graph", transposed_weight, r"transpose"),
        ("zero point is an input", scalar("zp", "int32", "in_zero", 3), r"\bzp\b"),
        ("scale is an input", scalar("sc", "float32", "out_scale", 0.07), r"\bsc\b"),
    ):
        family(change_conv, f"{target}: {label}", target, over, Cause(CONV, CONSTANT, word), True)


def blocks(
    name: str, rng: Rng, target: str, make: Callable[[Quantized, bool], Expr], cause: Cause, rows: bool = False,
    dtype: str = "int8"
) -> Case:
    """Any other block: `make` with and without the change, with the same sizes and numbers."""
    seed = int(rng.integers(1 << 30))
    base, changed = (make(random_block(np.random.default_rng(seed), dtype), flag) for flag in (False, True))
    return Case(name, target, base, changed, cause, rows_only(target) if rows else None)


def cases(count: int, seed: int = 0) -> Iterator[Case]:
    """`count` cases, family after family, each time with other sizes and numbers."""
    from offload_blind_families import declare  # families of single targets
    from offload_blind_more import declare_more

    if not FAMILIES:
        declare()
        declare_more()
    makers = list(FAMILIES.items())
    for i in range(count):
        _name, make = makers[i % len(makers)]
        yield make(np.random.default_rng([seed, i]))
