"""Operators of the domain com.microsoft, compared with ONNX Runtime, which defines them, in many forms of attributes
and optional inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tilewright.base.errors import ModelError
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate

runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime defines these operators")
Array = np.ndarray[Any, Any]
_random = np.random.default_rng(11)


def real(*shape: int, scale: float = 1.0) -> Array:
    return (_random.standard_normal(shape) * scale).astype(np.float32)


def byte(*shape: int, dtype: str = "uint8") -> Array:
    return _random.integers(0 if dtype[0] == "u" else -128, 255 if dtype[0] == "u" else 127, shape).astype(dtype)


def one(value: Any, dtype: str = "float32") -> Array:
    return np.asarray(value, dtype)


@dataclass(frozen=True)
class Case:
    """A node: its inputs, None for those that are left out; those behind the first `fed` are weights of the model."""

    op_type: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    fed: int = 1
    outputs: int = 1
    close: float = 1e-4

    @property
    def id(self) -> str:
        shown = "-".join("none" if x is None else "x".join(map(str, x.shape)) or "1" for x in self.inputs)
        return f"{self.op_type}-{shown}-" + "-".join(f"{k}={v}" for k, v in self.attributes.items())

    def model(self) -> tuple[onnx.ModelProto, dict[str, Array]]:
        names = [f"x{k}" if x is not None else "" for k, x in enumerate(self.inputs)]
        node = helper.make_node(
            self.op_type, names, [f"y{k}" for k in range(self.outputs)], name="it", domain="com.microsoft",
            **self.attributes
        )
        given = {n: x for n, x in zip(names, self.inputs, strict=True) if x is not None}
        fed = {n: given[n] for n in names[: self.fed] if n}
        kind = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in fed.items()],
            [onnx.ValueInfoProto(name=n) for n in node.output],
            [numpy_helper.from_array(x, n) for n, x in given.items() if n not in fed])
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9), fed


def _fused() -> list[Case]:
    x, image, w = real(2, 5, 8), real(1, 4, 9, 8), real(6, 4, 3, 3)
    found = [Case("Gelu", (x,)), Case("FastGelu", (x,)), Case(
        "FastGelu", (x, real(8))
    ), Case("BiasGelu", (x, real(8))), Case("QuickGelu", (x,)),
             Case("QuickGelu", (x,), {"alpha": 0.7})]
    for name, parameters in (
        ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.3, 0.4]),
        ("HardSigmoid", [0.3, 0.4])
    ):
        found.append(
            Case(
                "FusedConv", (image, w, real(6)),
                {"activation": name, **({"activation_params": parameters} if parameters else {}), "pads": [1, 1, 1, 1]}
            )
        )
    found.append(
        Case(
            "FusedConv", (image, w, real(6), real(1, 6, 4, 4)),
            {"activation": "Relu", "strides": [2, 2], "pads": [1, 1, 0, 0]}
        )
    )
    found.append(
        Case(
            "FusedGemm", (real(3, 4), real(5, 4), real(5)),
            {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5}
        )
    )
    for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        left, right = real(2, 3, *((5, 4) if a else (4, 5))), real(2, 3, *((6, 5) if b else (5, 6)))
        found.append(Case("FusedMatMul", (left, right), {"transA": a, "transB": b, "alpha": 0.5}, fed=2))
    found.append(Case("FusedMatMul", (real(4, 3, 5), real(3, 5, 6)), {"transBatchA": 1}, fed=2))
    found.append(Case("FusedMatMul", (x, real(8, 3)), {"alpha": 2.0}))
    skip, gamma, beta, bias = real(2, 5, 8), real(8), real(8), real(8)
    found += [
        Case("SkipLayerNormalization", (x, skip, gamma, *rest), {"epsilon": 1e-5}, fed=2)
        for rest in ((), (beta,), (beta, bias), (None, bias))
    ]
    found += [
        Case("SkipSimplifiedLayerNormalization", (x, skip, gamma, *rest), {"epsilon": 1e-5}, fed=2)
        for rest in ((), (bias,))
    ]
    ids, segments = _random.integers(0, 9, (2, 5)).astype(np.int32), _random.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    tables = (real(9, 8), real(7, 8), real(2, 8), gamma, beta)
    found.append(
        Case("EmbedLayerNormalization", (ids, segments, *tables, mask), {"mask_index_type": 1}, fed=2, outputs=2)
    )
    found.append(Case("EmbedLayerNormalization", (ids, segments, *tables), {}, fed=2, outputs=2))
    found.append(Case("EmbedLayerNormalization", (ids, None, tables[0], tables[1], None, gamma, beta), {}, outputs=2))
    found += [Case("CDist", (real(4, 3), real(5, 3)), {"metric": m}) for m in ("euclidean", "sqeuclidean")]
    found += [
        Case("NhwcMaxPool", (byte(1, 6, 7, 4),), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})
    ]
    found += [Case("Trilu", (real(4, 5),), {"upper": u}) for u in (0, 1)]
    found += [
        Case("Pad", (real(2, 3), one([0, 1, 2, 0], "int64"), one(0.5))),
        Case("ExpandDims", (real(2, 3), one(1, "int32")))
    ]
    found += [Case("GatherND", (real(3, 4), one([[0, 1], [2, 3]], "int64")))]
    found += [
        Case(
            "GridSample", (real(1, 2, 4, 5), real(1, 3, 3, 2, scale=0.6)), {"align_corners": a, "padding_mode": p},
            fed=2
        ) for a, p in ((0, "zeros"), (1, "border"))
    ]
    return found


def _quantized() -> list[Case]:
    s1, s2, s3 = one(0.02), one(0.03), one(0.05)
    z1, z2, z3 = one(120, "uint8"), one(100, "uint8"), one(110, "uint8")
    a, b, image = byte(2, 3, 4), byte(2, 3, 4), byte(1, 4, 6, 6)
    found = [Case(name, (a, s1, z1, b, s2, z2, s3, z3), close=1) for name in ("QLinearAdd", "QLinearMul")]
    found.append(
        Case(
            "QLinearAdd",
            (
                byte(2, 3, dtype="int8"), s1, one(3, "int8"), byte(3, dtype="int8"), s2, one(-4, "int8"), s3,
                one(5, "int8")
            ), close=1
        )
    )
    found += [
        Case("QLinearSigmoid", (a, s1, z1, one(1 / 256), one(0, "uint8")), close=1),
        Case("QLinearLeakyRelu", (a, s1, z1, s1, z2), {"alpha": 0.1}, close=1)
    ]
    found += [
        Case(
            "QLinearAveragePool", (image, s1, z1, s2, z2),
            {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": c}, close=1
        ) for c in (0, 1)
    ]
    found += [
        Case("QLinearGlobalAveragePool", (byte(1, 4, 6, 6), s1, z1, s2, z2), {"channels_last": last}, close=1)
        for last in (0, 1)
    ]
    found.append(Case("QLinearConcat", (s3, z3, a, s1, z1, b, s2, z2), {"axis": 1}, fed=3, close=1))
    found += [Case("QLinearSoftmax", (a, s3, z1, one(1 / 256), one(0, "uint8")), {"axis": -1, "opset": 13}, close=1)]
    found += [Case("QLinearConv", (byte(1, 5, 5, 4) if last else image, s1, z1, byte(
        3, 4, 3, 3, dtype="int8"
    ) // 2, s2, one(0, "int8"), one(1.5), z3,  # without VNNI, ONNX Runtime adds two products in 16 bits
                                   _random.integers(-90, 90, 3).astype(np.int32)), {"channels_last": last},
                                   close=1) for last in (0, 1)]
    weight, each = byte(6, 5), real(5) ** 2 * 0.01 + 0.01
    found += [Case(
        "QGemm", (byte(3, 6), s1, z1, weight, s2, z2, _random.integers(-90, 90, 5).astype(np.int32), *rest), close=close
    )
              for rest, close in (((), 1e-4), ((one(0.6), z3), 1))]
    found.append(Case("QGemm", (byte(3, 6), s1, z1, byte(5, 6), s2, z2), {"transB": 1, "alpha": 1.0}))
    found += [
        Case("MatMulIntegerToFloat", (byte(3, 6), weight, s1, *rest))
        for rest in ((s2,), (s2, z1, z2), (s2, z1, z2, real(5)), (each, z1, np.full(5, 90, "uint8")))
    ]
    found += [
        Case("DynamicQuantizeMatMul", (real(3, 6), weight, *rest), close=1e-3)
        for rest in ((s2,), (s2, z2), (s2, z2, real(5)), (each, np.full(5, 90, "uint8")))
    ]
    found += [
        Case(
            "MatMulInteger16",
            (_random.integers(-900, 900, (3, 6)).astype(np.int16), _random.integers(-900, 900, (6, 5)).astype(np.int16))
        )
    ]
    found += [Case("QuantizeLinear", (real(2, 3, 4), s1, z1)), Case("DequantizeLinear", (a, s1, z1)),
              Case(
                  "DequantizeLinear", (a, np.asarray([0.1, 0.2, 0.3], np.float32), np.asarray([3, 4, 5], np.uint8)),
                  {"axis": 1}
              )]
    for bits, size in ((4, 16), (4, 32), (8, 16)):
        k, n = 48, 6
        blocks = -(-k // size)
        packed = _random.integers(0, 256, (n, blocks, size * bits // 8)).astype(np.uint8)
        scales = _random.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
        points = _random.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
        sizes = {"K": k, "N": n, "bits": bits, "block_size": size}
        found += [
            Case("MatMulNBits", (real(3, k), packed, scales, *rest), sizes, close=1e-3)
            for rest in ((), (points,), (points, None, real(n)))
        ]
    return found


def _attention() -> list[Case]:
    x, w, b, heads = real(2, 5, 8), real(8, 24), real(24), {"num_heads": 2}
    keep = np.asarray([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    found = [Case("Attention", (x, w, b, *rest), {**heads, **more}) for rest, more in (
        ((), {}), ((), {"unidirectional": 1}), ((keep,), {}), ((one([3, 5], "int32"),), {}), ((), {"scale": 0.7}),
        ((one([3, 5, 0, 1], "int32"),), {}), ((np.repeat(keep[:, None], 5, axis=1),), {}),
        ((None, None, real(2, 2, 5, 5)), {}))]
    found.append(Case("Attention", (x, real(8, 8 + 8 + 12), real(28)), {**heads, "qkv_hidden_sizes": [8, 8, 12]}))
    found.append(
        Case(
            "Attention", (real(2, 1, 8), w, b, None, real(2, 2, 2, 3, 4)), {**heads, "unidirectional": 1}, fed=5,
            outputs=2
        )
    )
    q, k, v = real(2, 3, 8), real(2, 5, 8), real(2, 5, 8)
    found += [Case("MultiHeadAttention", (q, k, v, *rest), heads, fed=3) for rest in (
        (), (real(24),), (None, keep), (None, one([3, 5], "int32")), (None, None, real(1, 2, 3, 5)),
        (None, None, real(2, 2, 3, 5)))]
    found.append(Case("MultiHeadAttention", (q, real(2, 2, 5, 4), real(2, 2, 5, 4)), heads, fed=3))
    found.append(
        Case(
            "MultiHeadAttention", (x, x, x, None, None, None, real(2, 2, 3, 4), real(2, 2, 3, 4)), heads, fed=8,
            outputs=3
        )
    )
    found.append(Case("MultiHeadAttention", (x, x, x), {**heads, "unidirectional": 1}, fed=3))
    cos, sin = np.cos(real(10, 2)), np.sin(real(10, 2))
    places = np.asarray([[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]], np.int64)
    for interleaved in (0, 1):
        found += [
            Case("RotaryEmbedding", (x, p, cos, sin), {"interleaved": interleaved}, fed=2)
            for p in (one([2], "int64"), places)
        ]
        found.append(Case("RotaryEmbedding", (real(2, 2, 5, 4), places, cos, sin), {"interleaved": interleaved}, fed=2))
    found.append(
        Case("RotaryEmbedding", (real(2, 5, 16), places, cos, sin), {"num_heads": 2, "rotary_embedding_dim": 4}, fed=2)
    )
    group = {"num_heads": 4, "kv_num_heads": 2}
    big_cos, big_sin = np.cos(real(20, 8)), np.sin(real(20, 8))
    prompt = (real(2, 5, 64), real(2, 5, 32), real(2, 5, 32))
    no_past = (real(2, 2, 0, 16), real(2, 2, 0, 16))
    end = (one([4, 4], "int32"), one(5, "int32"))
    found.append(Case("GroupQueryAttention", (*prompt, *no_past, *end), group, fed=3, outputs=3))
    found.append(
        Case(
            "GroupQueryAttention", (*prompt, *no_past, *end, big_cos, big_sin), {**group, "do_rotary": 1}, fed=3,
            outputs=3
        )
    )
    found.append(Case("GroupQueryAttention", (real(2, 5, 128), None, None, *no_past, *end), group, outputs=3))
    found.append(
        Case("GroupQueryAttention", (*prompt, *no_past, *end), {**group, "local_window_size": 2}, fed=3, outputs=3)
    )
    found.append(Case("GroupQueryAttention", (*prompt, *no_past, *end), {**group, "softcap": 2.0}, fed=3, outputs=3))
    step = (real(2, 1, 64), real(2, 1, 32), real(2, 1, 32), real(2, 2, 6, 16), real(2, 2, 6, 16))
    for lengths in ([6, 6], [4, 6]):
        found.append(
            Case(
                "GroupQueryAttention", (*step, one(lengths, "int32"), one(7, "int32"), big_cos, big_sin),
                {**group, "do_rotary": 1}, fed=6, outputs=3
            )
        )
    found.append(
        Case(
            "QAttention",
            (byte(2, 5, 8), byte(8, 24), b, one(0.02), one(0.03), None, one(120, "uint8"), one(110, "uint8")), heads
        )
    )
    return found


CASES = [*_fused(), *_quantized(), *_attention()]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_as_onnx_runtime(case: Case) -> None:
    model, fed = case.model()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    wanted = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, fed)
    found: Any = evaluate(from_onnx(model)[0]["main"], *fed.values())
    for got, answer in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert got.shape == answer.shape
        assert got.dtype == answer.dtype
        np.testing.assert_allclose(got.astype(np.float64), answer.astype(np.float64), rtol=1e-4, atol=case.close)


@pytest.mark.parametrize(("case", "words"), [
    (
        Case("FusedConv", (real(1, 2, 4, 4), real(2, 2, 1, 1)), {"activation": "Sine"}),
        "activation is 'Sine'; it must be one of Relu"
    ),
    (Case("CDist", (real(2, 2), real(2, 2)), {"metric": "cosine"}), "metric is 'cosine'"),
    (
        Case("SkipLayerNormalization", (real(2, 2, 4), real(2, 2, 4), real(4)), outputs=2),
        "its outputs mean and deviation are for training"
    ),
    (
        Case("QLinearConcat", (one(1.0), one(0, "uint8"), byte(2, 2), one(1.0)), {"axis": 0}, fed=3),
        "give three for each tensor"
    ),
    (
        Case("MatMulNBits", (real(1, 16), byte(2, 1, 6), real(2, 1)), {"K": 16, "N": 2, "bits": 3, "block_size": 16}),
        "bits must be 2, 4 or 8"
    ),
    (
        Case("Attention", (real(1, 2, 4), real(4, 12)), {"num_heads": 1, "do_rotary": 1}),
        "do_rotary and past_present_share_buffer are not supported"
    ),
    (Case("BeamSearch", (one([[1]], "int32"), one([4], "int32"))), "BeamSearch"),
], ids=lambda c: c.id if isinstance(c, Case) else "")
def test_refusals_name_the_node(case: Case, words: str) -> None:
    with pytest.raises(ModelError, match="it") as caught:
        from_onnx(case.model()[0])
    assert words in str(caught.value)


def test_forms_that_onnx_runtime_has_for_other_devices() -> None:
    """Packed heads, and softmax of a sum, against numpy."""
    packed = real(2, 5, 2, 3, 4)
    q, k, v = (packed[:, :, :, j].transpose(0, 2, 1, 3) for j in range(3))
    scores = np.exp(q @ k.swapaxes(2, 3) / 2)
    answer = (scores / scores.sum(axis=-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(2, 5, 8)
    model, fed = Case("MultiHeadAttention", (packed,), {"num_heads": 2}).model()
    np.testing.assert_allclose(evaluate(from_onnx(model)[0]["main"], *fed.values()), answer, rtol=1e-4, atol=1e-5)
    model, fed = Case(
        "MultiHeadAttention", (q.transpose(0, 2, 1, 3).reshape(2, 5, 8), packed[:, :, :, 1:].copy()), {"num_heads": 2},
        fed=2
    ).model()
    np.testing.assert_allclose(evaluate(from_onnx(model)[0]["main"], *fed.values()), answer, rtol=1e-4, atol=1e-5)
    data, bias = real(2, 3, 4, 5), real(2, 1, 1, 5)
    powers = np.exp(data + bias)
    model, fed = Case("BiasSoftmax", (data, bias), {"axis": 3, "is_inner_broadcast": 1}, fed=2).model()
    np.testing.assert_allclose(
        evaluate(from_onnx(model)[0]["main"], *fed.values()), powers / powers.sum(axis=-1, keepdims=True), rtol=1e-4
    )


@pytest.mark.parametrize("align_corners", [0, 1])
def test_points_halfway_between_pixels_are_rounded_before_they_are_reflected(align_corners: int) -> None:
    node = helper.make_node(
        "GridSample", ["x", "g"], ["y"], mode="nearest", padding_mode="reflection", align_corners=align_corners)
    graph = helper.make_graph([node], "g", [
        helper.make_tensor_value_info("x", 1, [1, 1, "h", "w"]), helper.make_tensor_value_info("g", 1, [1, 3, 5, 2])
    ], [helper.make_tensor_value_info("y", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    session, program = runtime.InferenceSession(model.SerializeToString()), tilewright.compile(model, symbolic=True)
    rng = np.random.default_rng(0)
    for height, width in ((3, 8), (5, 4), (1, 7)):
        given = {"x": rng.random((1, 1, height, width), np.float32),
                 "g": (rng.integers(-40, 41, (1, 3, 5, 2)) / 16).astype(np.float32)}
        (wanted,) = session.run(None, given)
        known = tilewright.compile(model, shapes={n: v.shape for n, v in given.items()})
        np.testing.assert_array_equal(program(**given), wanted)
        np.testing.assert_array_equal(known(**given), wanted)
