"""The ONNX operator suite by family: every operator that is claimed passes all of its tests."""

from __future__ import annotations

import collections
import warnings

import pytest

from onnx_suite import Case, cases, check
from tilewright.errors import CompileError

pytestmark = pytest.mark.core

WHOLE = ["Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "Attention", "AveragePool", "BatchNormalization", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "BlackmanWindow", "CausalConvWithState", "Ceil", "Celu", "CenterCropPad", "Clip", "Concat", "Constant", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Cosh", "CumSum", "DepthToSpace", "Det", "Div", "Elu", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "GRU", "Gelu", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GroupNormalization", "HammingWindow", "HannWindow", "HardSigmoid", "HardSwish", "Hardmax", "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "LinearAttention", "Log", "LogSoftmax", "LpNormalization", "LpPool", "MatMul", "Max", "Mean", "MeanVarianceNormalization", "Min", "Mish", "Mod", "Mul", "Neg", "NegativeLogLikelihoodLoss", "NonZero", "Not", "OneHot", "Or", "PRelu", "Pad", "Pow", "RMSNormalization", "RNN", "Range", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "ReverseSequence", "RotaryEmbedding", "Round", "Scan", "Scatter", "ScatterElements", "ScatterND", "Selu", "Shape", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax", "SoftmaxCrossEntropyLoss", "Softplus", "Softsign", "SpaceToDepth", "SwiGLU", "FlexAttention", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze", "Upsample", "Where", "Xor", "AffineGrid", "Compress", "CumProd", "DFT", "Einsum", "GridSample", "NonMaxSuppression", "RoiAlign", "STFT"]
"""The operators all of whose tests pass."""
PARTLY = {
    "Cast": 18, "CastLike": 18, "Dropout": 8, "Equal": 8, "Identity": 1, "If": 1, "MaxPool": 17, "ReduceLogSumExp": 8, "ReduceMax": 9,
    "ReduceMin": 9,
    "Resize": 33,
}
"""Operators with tests that are refused (float8, training, indices of maxima, antialiasing, …), and how many pass."""


def _outcomes() -> dict[str, dict[str, str]]:
    """What is wrong with each test, by family; an empty string for a test that passes."""
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero and overflows on purpose
        for case in cases():
            found[case.family][case.name] = _outcome(case)
    return found


def _outcome(case: Case) -> str:
    try:
        check(case)
    except (CompileError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, str]]:
    found = _outcomes()
    total, passed = sum(map(len, found.values())), sum(not why for family in found.values() for why in family.values())
    print(f"\nONNX operator suite: {passed} of {total} tests pass")
    return found


def test_claimed_families_pass_whole(outcomes: dict[str, dict[str, str]]) -> None:
    present = [family for family in WHOLE if family in outcomes]
    wrong = {name: why for family in present for name, why in outcomes[family].items() if why}
    assert not wrong
    assert len(present) > 100


@pytest.mark.parametrize("family", PARTLY)
def test_partly_supported_families(outcomes: dict[str, dict[str, str]], family: str) -> None:
    passed = [name for name, why in outcomes[family].items() if not why]
    assert len(passed) >= PARTLY[family], {name: why for name, why in outcomes[family].items() if why}


def test_what_fails_is_refused_not_wrong(outcomes: dict[str, dict[str, str]]) -> None:
    wrong = {name for family in outcomes.values() for name, why in family.items() if why.startswith("AssertionError")}
    # ONNX divides by the size before it is rounded down, where all runtimes divide by the size that comes out.
    assert wrong <= {"test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"}


def test_expansions_of_composite_operators_pass(outcomes: dict[str, dict[str, str]]) -> None:
    assert sum(not why for why in outcomes["expanded"].values()) >= 344
