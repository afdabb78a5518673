"""The tests that follow from an accelerator's declaration: they pass for the virtual NPU, and find errors that are
planted into its file."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright.backends.accelerators import npu as npu_file
from tilewright.backends.accelerators.declared import conformance, forms
from tilewright.backends.accelerators.declared.testing import ConformanceError
from tilewright.backends.accelerators.npu import npu

SOURCE = Path(npu_file.__file__).read_text(encoding="utf-8")

PLANTED = {
    "the data's zero point is forgotten": (
        "x.astype(np.int32) - in_zero, w.astype(np.int32) - q[:, 3], (sh, sw)",
        "x.astype(np.int32), w.astype(np.int32) - q[:, 3], (sh, sw)"
    ),
    "the weight's zero point is forgotten": (
        "arithmetic.convolve(x.astype(np.int32) - in_zero, w.astype(np.int32) - q[:, 3]",
        "arithmetic.convolve(x.astype(np.int32) - in_zero, w"
    ),
    "strides are swapped": ('"sh": f.strides[0], "sw": f.strides[1]', '"sh": f.strides[1], "sw": f.strides[0]'),
    "one stride is used twice": ('"sh": f.strides[0], "sw": f.strides[1]', '"sh": f.strides[0], "sw": f.strides[0]'),
    "the instruction has no dilation": (
        "w.astype(np.int32) - q[:, 3], (sh, sw), (dh, dw))\n    return finish",
        "w.astype(np.int32) - q[:, 3], (sh, sw))\n    return finish"
    ),
    "the operator has no dilation": ('"dh": f.dilation[0]', '"dh": 1'),
    "sums are rounded twice where once is right": ("q[:, 2], once)", "q[:, 2], 1 - once)"),
    "the bias is forgotten": ("sums + q[:, 0]", "sums"),
    "the result's zero point is forgotten": ("scaled + out_zero", "scaled"),
    "an activation is forgotten": (
        "saturated(scaled + out_zero, low, high, dtype)",
        "saturated(scaled + out_zero, np.iinfo(dtype).min, np.iinfo(dtype).max, dtype)"
    ),
    "results are int8 for uint8 data too": (
        "once, out_zero, low, high, x.dtype)", "once, out_zero, low, high, np.int8)"
    ),
    "sums have 16 bits": ("scaled = arithmetic.rescaled(sums", "scaled = arithmetic.rescaled(sums.astype(np.int16)"),
    "a tile's width leaves the dilation out": (
        '0x10, x="n h*sh+kh*dh w*sw+kw*dw ci"', '0x10, x="n h*sh+kh*dh w*sw+kw ci"'
    ),
    "a tile's height goes by the stride of its width": ('0x11, x="n h*sh+kh*dh', '0x11, x="n h*sw+kh*dh'),
    "parameters have three columns": ('q="co 4"', 'q="co 3"'),
    "weights are upside down": (
        "convolve_depthwise(x.astype(np.int32) - in_zero, w.",
        "convolve_depthwise(x.astype(np.int32) - in_zero, w[::-1]."
    ),
    "a sum has 16 bits of headroom": ("(b.astype(np.int64) - b_zero) << 20", "(b.astype(np.int64) - b_zero) << 16"),
    "a sum uses one zero point twice": ("b_zero=f.zeros[1]", "b_zero=f.zeros[0]"),
    "a sum uses one exponent twice": ("b_exp=b_exp", "b_exp=a_exp"),
    "a sum has no activation": ("out_zero=f.zeros[2], low=f.low", "out_zero=f.zeros[2], low=-128"),
    "a mean counts a square": ("rounded_quotient(sums, kh * kw)", "rounded_quotient(sums, kh * kh)"),
    "a mean is rounded down": ("arithmetic.rounded_quotient(sums, kh * kw)", "(sums // (kh * kw))"),
    "a mean may change its scale": ("f.scales[0] == f.scales[1] and f.zeros[0] == f.zeros[1]", "True"),
    "a mean of parts may change its scale": ("f.y.shape[1:3] == (1, 1)", "True"),
    "one over the size of a mean is not folded in": ("by=(by << shift) // count", "by=by // count"),
    "a mean may be padded": ("f.require(not any(f.padding)", "f.require(True"),
    "the smallest is taken for the largest": (".max((3, 4))", ".min((3, 4))"),
    "parts overlap": ("at += x.shape[axis]", "at += 1"),
    "a matrix is not transposed": ("f.weight.reshape(1, 1, k, units)", "f.weight.T.reshape(1, 1, k, units)"),
    "cycles round channels down": (
        "n * h * w * kh * kw * ceil(ci, 16) * ceil(co, 16) + 32", "n * h * w * kh * kw * (ci // 16) * (co // 16) + 1"
    ),
    "an instruction takes no time": ("n * h * w * ceil(c, 16))", "0)"),
    "a refusal says no edit": ('"give the pool\'s result the scale of its data"', '""'),
}


def declared(text: str) -> Any:
    """The accelerator of a file's text, not registered."""
    module = ModuleType("planted")
    exec(compile(text.replace("npu.register()", ""), "planted.py", "exec"), module.__dict__)
    return module.npu


@pytest.mark.slow
def test_the_declaration_as_it_is_has_no_failures() -> None:
    found = conformance(npu, samples=10)
    assert found, str(found)
    assert set(found.ran) == set(npu.operators) and all(count == 10 for count in found.ran.values())
    assert all(rule for refused in found.refused.values() for rule in refused)
    found.check()


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_error_is_found(what: str) -> None:
    old, new = PLANTED[what]
    assert SOURCE.count(old) >= 1, what
    found = conformance(declared(SOURCE.replace(old, new)), samples=16, stop_at=1)
    assert not found, what
    with pytest.raises(ConformanceError, match="FAILED"):
        found.check()


def test_a_form_without_samples_and_one_that_matches_nothing_are_failures() -> None:
    class unsampled(forms.Form):
        pattern = forms.reshape.pattern
        read = forms.reshape.read

    class elsewhere(forms.reshape):
        def pattern(self) -> Any:
            return forms.max_pool2d().pattern()

    mine = declared(SOURCE)
    mine.operators.clear()
    mine.operator(unsampled())(lambda f: f.x)
    assert "has no sample(rng, accelerator)" in str(conformance(mine, samples=2))
    mine.operators.clear()
    mine.operator(elsewhere())(lambda f: f.x)
    assert "does not match a program of its own form" in str(conformance(mine, samples=2))


def test_an_accelerator_that_takes_nothing_is_told() -> None:
    found = conformance(
        declared(
            SOURCE.replace(
                "def pad(f: Any) -> Any:\n", "def pad(f: Any) -> Any:\n    f.require(False, 'never', 'none')\n"
            )
        ), samples=2
    )
    assert "pad: it takes none of 40 programs" in str(found)
    assert found.refused["pad"] == {"never": 40}
    assert np.sum([*found.ran.values()]) == 2 * (len(npu.operators) - 1)
