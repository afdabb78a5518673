"""`tvm.testing.aot`: programs compiled ahead of time are compared with reference results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from quantized_networks import NETWORKS
from quantized_writers import to_tflite
from tilewright import relay
from tilewright.base.errors import OptionError
from tilewright.compat.testing import aot
from tilewright.compat.testing.micro import aot_test_utils
from tilewright.relay.op.contrib import partition_for


def test_ranges_of_types() -> None:
    assert [aot.get_dtype_range(t) for t in ("int8", "uint8", "float32")] == [(-128, 127), (0, 255), (0, 1)]


def test_a_program_is_compared_with_reference_results() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([relay.nn.relu(x), relay.exp(x)])))
    data = {"x": np.array([[1, -2, 3], [-4, 5, -6]], "float32")}
    wanted = aot.generate_ref_data(mod, data)
    assert list(wanted) == ["output", "output2"]
    assert aot.compile_and_run(aot.AOTTestModel(mod, data, wanted), aot_test_utils.AOT_DEFAULT_RUNNER, "c", True)
    wrong = {**wanted, "output": wanted["output"] + 1}
    with pytest.raises(AssertionError):
        aot.compile_and_run(aot.AOTTestModel(mod, data, wrong), aot.AOTTestRunner(), "c", True)
    assert aot.compile_and_run(aot.AOTTestModel(mod, data, wrong, 1.0), aot.AOTTestRunner(), "c", True)
    with pytest.raises(OptionError, match="schedules are not chosen by name"):
        aot.compile_models(aot.AOTTestModel(mod, data, wanted), "c", True, schedule_name="fast")


def test_a_tflite_file_is_imported_with_random_inputs(tmp_path: Path) -> None:
    file = tmp_path / "ds_cnn.tflite"
    file.write_bytes(to_tflite(NETWORKS["ds_cnn"]()))
    mod, inputs, params = aot.create_relay_module_and_inputs_from_tflite_file(file)
    (parameter,) = mod["main"].params
    (value,) = inputs.values()
    assert params == {} and list(inputs) == [parameter.name_hint]
    assert value.shape == parameter.checked_type.concrete_shape and str(value.dtype) == parameter.checked_type.dtype
    least, most = aot.get_dtype_range(parameter.checked_type.dtype)
    assert least <= value.min() < value.max() <= most
    assert len(aot.generate_ref_data(mod, inputs)) == 1


def test_parts_of_a_library_are_computed_by_their_meaning() -> None:
    x = relay.var("x", shape=(1, 4, 4, 3), dtype="int8")
    mod = tvm.IRModule.from_expr(relay.nn.max_pool2d(x, (2, 2), layout="NHWC"))
    part = partition_for("cmsis-nn", mod)
    data = {"x": np.random.default_rng(0).integers(-128, 128, (1, 4, 4, 3)).astype("int8")}
    model = aot.AOTTestModel(part, data, aot.generate_ref_data(mod, data))
    assert aot.compile_and_run(model, aot_test_utils.AOT_USMP_CORSTONE300_RUNNER, "c", True)
