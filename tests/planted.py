"""Candidates for the tests of measuring: right ones, and ones that do each of the things that must not stop a
search."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, replace
from typing import Final

from tilewright import tir
from tilewright.search.measure import Candidate, MeasureErrorNo
from tilewright.tir.stmt import PrimFunc

_HEAD: Final = 'def double(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):\n'
RIGHT: Final = "    for i in T.serial(64):\n        B[i] = A[i] * 2.0\n"
_BODIES: Final = {
    "right": RIGHT,
    "sum": "    for i in T.serial(64):\n        B[i] = A[i] + A[i]\n",
    "wrong answer": "    for i in T.serial(64):\n        B[i] = A[i] * 2.001\n",
    "one element left out": "    for i in T.serial(63):\n        B[i] = A[i] * 2.0\n",
    "nan": "    for i in T.serial(64):\n        B[i] = T.log(-1.0 - A[i] * A[i])\n",
    "wrote outside": "    for i in T.serial(66):\n        B[i] = A[i] * 2.0\n",
    "wrote input": "    for i in T.serial(64):\n        B[i] = A[i] * 2.0\n    A[3] = T.float32(0)\n",
    "segfault": '    T.evaluate(T.call_extern("int32", "raise", 11))\n' + RIGHT,
    "abort": '    T.evaluate(T.call_extern("int32", "abort"))\n' + RIGHT,
    "exit": '    T.evaluate(T.call_extern("int32", "_exit", 3))\n' + RIGHT,
    "endless run": '    for i in T.serial(1000000):\n        T.evaluate(T.call_extern("int32", "sleep", 1000))\n'
    + RIGHT,
    "no such function": '    T.evaluate(T.call_extern("int32", "nobody_has_this_function"))\n' + RIGHT,
}
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Planted(Candidate):
    """A candidate of the workload `double`, which `kind` says the behaviour of."""

    key: str
    config: str
    target: str
    kind: str = "right"
    checked: bool = True

    def lower(self) -> PrimFunc:
        match self.kind:
            case "endless build":
                re.match(r"(a+)+$", "a" * 64 + "b")  # never lets go of the interpreter
            case "crashing build":
                os.abort()
            case "huge memory":
                bytearray(1 << 46)
            case "exception":
                raise ValueError("the factors do not divide the extent")
            case "slow build":
                time.sleep(0.05)
        text = _HEAD + _BODIES.get(self.kind, RIGHT)
        if self.kind == "other arguments":
            text = text.replace("(64,)", "(65,)")
        return tir.parse(f"@T.prim_func\n{text}")

    def default(self) -> Candidate | None:
        return replace(planted(DEFAULT, 0), target=self.target) if self.checked else None


def planted(kind: str, index: int = 0, checked: bool = True) -> Planted:
    """The candidate of that kind; `index` tells those of one kind apart."""
    return Planted(
        json.dumps(["double.test", [["TENSOR", [64], "float32"]], {}]),
        json.dumps({"index": index, "entity": [["kind", "ot", kind]]}), "llvm", kind, checked
    )


EXPECTED: Final = {
    "right": MeasureErrorNo.NO_ERROR,
    "segfault": MeasureErrorNo.RUNTIME_DEVICE,
    "abort": MeasureErrorNo.RUNTIME_DEVICE,
    "exit": MeasureErrorNo.RUNTIME_DEVICE,
    "endless build": MeasureErrorNo.BUILD_TIMEOUT,
    "sum": MeasureErrorNo.NO_ERROR,
    "endless run": MeasureErrorNo.RUN_TIMEOUT,
    "wrong answer": MeasureErrorNo.WRONG_ANSWER,
    "one element left out": MeasureErrorNo.WRONG_ANSWER,
    "nan": MeasureErrorNo.WRONG_ANSWER,
    "wrote outside": MeasureErrorNo.WRONG_ANSWER,
    "wrote input": MeasureErrorNo.WRONG_ANSWER,
    "other arguments": MeasureErrorNo.WRONG_ANSWER,
    "huge memory": MeasureErrorNo.INSTANTIATION_ERROR,
    "exception": MeasureErrorNo.INSTANTIATION_ERROR,
    "crashing build": MeasureErrorNo.COMPILE_HOST,
    "no such function": MeasureErrorNo.RUNTIME_DEVICE,
    "slow build": MeasureErrorNo.NO_ERROR,
}
"""Each kind, and what its result is."""
