"""The operator tests that come with ONNX, run by the importer and the reference interpreter."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tilewright.errors import ModelError
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate

_LOOSE = {"float16": 1e-3, "bfloat16": 2e-2}


@dataclass(frozen=True)
class Case:
    """One test of the suite: a model of one node, and what comes out for what goes in."""

    name: str
    model: onnx.ModelProto
    data_sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float

    @property
    def family(self) -> str:
        """The operator that the test is about; its expansions into simpler ones are families of their own."""
        return self.model.graph.node[0].op_type if not self.name.endswith("_expanded") else "expanded"


@functools.cache
def cases() -> tuple[Case, ...]:
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    for case in load_model_tests(kind="node"):
        if case.model is not None:
            yield Case(case.name, case.model, tuple(case.data_sets), case.rtol, case.atol)


def check(case: Case) -> None:
    """Import and evaluate; raises where the answer is wrong or the import is refused.

    The suite passes shapes, axes and the like as inputs of the model. Those that the compiler must know are stored in the
    model first, as exporters do: integers behind the first input at once, everything when that is not enough.
    """
    for inputs, outputs in case.data_sets:
        arrays = [_array(x) for x in inputs]
        try:
            got = _run(case.model, arrays, ())
        except ModelError as error:
            if "must be known while compiling" not in str(error):
                raise
            small = {k for k, x in enumerate(arrays) if k and (x.dtype.kind in "iub" or x.ndim <= 1)}
            try:
                got = _run(case.model, arrays, small)
            except ModelError:
                got = _run(case.model, arrays, range(len(arrays)))
        for result, wanted in zip(got, map(_array, outputs), strict=True):
            _compare(case, result, wanted)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (list, onnx.SequenceProto, onnx.OptionalProto)) or value is None:
        raise ModelError("sequences are not tensors")
    return np.asarray(value)


def _run(model: onnx.ModelProto, arrays: list[Any], stored: Any) -> tuple[Any, ...]:
    if stored:
        whole, model = model, onnx.ModelProto()
        model.CopyFrom(whole)
        for k in stored:
            model.graph.initializer.append(numpy_helper.from_array(arrays[k], model.graph.input[k].name))
    module, _ = from_onnx(model)
    got = evaluate(module["main"], *[x for k, x in enumerate(arrays) if k not in stored])
    return got if isinstance(got, tuple) else (got,)


def _compare(case: Case, result: Any, wanted: Any) -> None:
    assert result.shape == wanted.shape, f"{case.name}: shape {result.shape}, not {wanted.shape}"
    assert result.dtype == wanted.dtype, f"{case.name}: {result.dtype}, not {wanted.dtype}"
    if wanted.dtype.kind in "biu" or str(wanted.dtype) in ("int4", "uint4"):
        assert np.array_equal(result, wanted), f"{case.name}: {result} is not {wanted}"
        return
    loose = _LOOSE.get(str(wanted.dtype), 0.0)
    np.testing.assert_allclose(np.asarray(result, np.float64), np.asarray(wanted, np.float64), err_msg=case.name,
                               rtol=max(case.rtol, loose), atol=max(case.atol, loose))
