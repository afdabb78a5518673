"""Every operator there is, with attributes that vary, as text and as JSON and back.

What a call is applied to has no type here, so that any attributes go with it: these programs reach what well-typed ones
of `random_programs.py` do not (operators of quantized tensors, of computed shapes, marks).
"""

from __future__ import annotations

import dataclasses
import inspect
import random
import re
from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.ir.virtual_device import VirtualDevice
from tilewright.relay.expr import Call, Expr, Function, Tuple, var
from tilewright.relay.op.registry import OPS, Op
from tilewright.relay.parser import fromtext
from tilewright.relay.printer import astext
from tilewright.relay.serialization import load_json, save_json

assert relay.qnn.op is not None  # whose operators are in the table then
VARIANTS = 12
OUTER_COMMA = re.compile(r", (?![^\[]*\])")
TEXTS = ("float32", "NCHW", "", 'a "b" \\ /*', "été", "cpu:0")


def drawn(kind: str, rng: random.Random) -> Any:
    """A value of a field that is declared as `kind`."""
    if " | " in kind:
        return drawn(rng.choice(kind.split(" | ")), rng)
    match kind:
        case "None":
            return None
        case "str":
            return rng.choice(TEXTS)
        case "VirtualDevice":
            return VirtualDevice(rng.choice((None, tvm.cpu(0), tvm.cuda(1))))
        case "bool":
            return rng.random() < 0.5
        case "int":
            return rng.choice((0, 1, 2, 3, -1, 7, 1 << 31, -(1 << 40)))
        case "float":
            return rng.choice((0.0, -0.0, 0.5, -1e-12, 1 / 3, 1e30, float("inf"), float("-inf"), float("nan")))
        case "Any" | "Axis":
            return drawn(rng.choice(("None", "int", "tuple[int, ...]")), rng)
        case _ if kind.startswith("tuple["):
            first, *others = (
                "int" if k == "Any" else k for k in OUTER_COMMA.split(kind.removeprefix("tuple[").removesuffix("]"))
            )
            return tuple(drawn(k, rng) for k in ([first] * rng.randrange(4) if others == ["..."] else [first, *others]))
    raise AssertionError(f"attributes of the kind {kind} are not drawn: add it here")


def calls_of(cls: type[Op], rng: random.Random) -> Call:
    """A call with attributes of the kinds that are declared; values that the operator refuses are drawn again."""
    inputs: list[Expr] = [Tuple((var("a"), var("b")))] if cls.variadic else [
        var(n) for n in list(inspect.signature(cls.infer).parameters)[1:]
    ]
    for _ in range(1000):
        try:
            kept = rng.choice((0, 0.5, 0.9))
            given = {
                f.name: drawn(str(f.type), rng) for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING
                or rng.random() >= kept
            }
            return Call(cls(**given), inputs)
        except CompileError:
            continue
    raise AssertionError(f"{cls.name} refuses all attributes that are drawn")


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_operator_with_any_attributes_is_read_back(name: str) -> None:
    rng = random.Random(name)
    for _ in range(VARIANTS):
        call = calls_of(OPS[name], rng)
        mod = IRModule({"main": Function(relay.analysis.free_vars(call), call)})
        text = astext(mod)
        again = fromtext(text)
        assert_structural_equal(again, mod)
        assert astext(again) == text
        assert_structural_equal(load_json(save_json(mod)), mod)
        found = again["main"].body.op
        assert type(found) is OPS[name] and repr(found.attributes()) == repr(call.op.attributes())
