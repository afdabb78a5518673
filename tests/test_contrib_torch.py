"""TVMScript and compiled models as modules of PyTorch: TVM's `contrib.torch`."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tilewright import IRModule
from tilewright.base.errors import OptionError
from tilewright.tir import parse

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
contrib: Any = pytest.importorskip("tilewright.contrib.torch")


double = parse("""
@T.prim_func
def double(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""")


@pytest.mark.parametrize("function", [double, IRModule({"main": double})])
@pytest.mark.parametrize("is_tuned", [False, True])
def test_a_function_of_tvmscript_writes_tensors(function: Any, is_tuned: bool) -> None:
    module = contrib.as_torch(function)
    if is_tuned:
        module.tune(max_trials_global=4)
    x, y = torch.randn(4, 8), torch.zeros(4, 8)
    module(x, y)
    assert torch.equal(y, x * 2) and isinstance(module, torch.nn.Module)
    assert "A[vi, vj] * 2.0" in module.script()


def test_only_tvmscript_becomes_a_module() -> None:
    with pytest.raises(OptionError, match=r"as_torch takes a T\.prim_func or an IRModule, not a int"):
        contrib.as_torch(1)


class Two(torch.nn.Module):  # type: ignore[misc]
    """Two outputs of two inputs."""

    def forward(self, x: Any, y: Any) -> Any:
        return torch.relu(x + y), x * 2


def test_a_model_is_compiled_and_can_be_pickled() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU())
    x = torch.randn(2, 1, 8, 8)
    compiled = contrib.optimize_torch(model, x, work_dir="ignored")
    torch.testing.assert_close(compiled(x), model(x).detach(), rtol=1e-5, atol=1e-5)
    again = pickle.loads(pickle.dumps(compiled))
    assert torch.equal(again(x), compiled(x))


def test_a_model_has_many_inputs_and_outputs() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for ours, theirs in zip(contrib.optimize_torch(Two(), [x, y])(x, y), Two()(x, y), strict=True):
        torch.testing.assert_close(ours, theirs)
