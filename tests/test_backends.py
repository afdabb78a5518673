"""The interface of back ends: how they are found, what they answer, and strategies by class of operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from test_layers import edges, room
from tilewright import te
from tilewright.backends.base import Backend, Strategies, Strategy
from tilewright.backends.cpu.c.backend import C
from tilewright.backends.cpu.llvm.backend import LLVM
from tilewright.backends.cpu.strategies.schedules.kernel import CpuSchedule
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.backends.registry import GROUP, backend_names, find_backend
from tilewright.backends.targets.target import Target
from tilewright.base.errors import TargetError
from tilewright.relay.op.elementwise import Exp
from tilewright.relay.op.registry import Op

MODULE = '''
from tilewright.backends.cpu.llvm.backend import LlvmBackend


class Spare(LlvmBackend):
    name = "spare"
    options = {**LlvmBackend.options, "scratchpad": "number"}


SPARE = Spare()
WRONG = object()
'''


def run_with_package(
    code: str, folder: Path, value: str = "spare_backend:SPARE", module: str = MODULE
) -> subprocess.CompletedProcess[str]:
    """Run Python where a package with an entry point for the back end `spare` is installed."""
    (folder / "spare_backend.py").write_text(module, encoding="utf-8")
    metadata = folder / "spare_backend-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: spare-backend\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nspare = {value}\n", encoding="utf-8")
    text = f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=folder, check=False)


def test_the_back_ends_of_this_package() -> None:
    assert {"c", "llvm"} <= set(backend_names())
    assert find_backend("llvm") is LLVM is Target("llvm").backend and Target("c").backend is C
    assert (LLVM.stages, C.stages) == (("ll", "asm"), ("c",)) and C.one_text and not LLVM.one_text
    assert LLVM.device is None and C.device is None
    with pytest.raises(TargetError, match="'cuda' is not a kind of target"):
        find_backend("cuda")


@pytest.mark.slow
def test_a_package_brings_a_back_end(tmp_path: Path) -> None:
    code = """
import numpy as np, tilewright as tvm
from tilewright import relay
target = tvm.Target("spare -scratchpad=65536 -mcpu=native")
assert (target.attrs["scratchpad"], target.keys, tvm.Target(target.export())) == (65536, ("cpu",), target)
assert "spare" in tvm.Target.list_kinds()
x = relay.var("x", shape=(4, 8))
model = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.op.exp(x))), target="spare")
v = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
np.testing.assert_allclose(model(v), np.exp(v), rtol=1e-6)
model.save("m.so")
np.testing.assert_allclose(tvm.load("m.so")(v), np.exp(v), rtol=1e-6)
"""
    done = run_with_package(code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("value", "said"), [
    (
        "absent_module:SPARE",
        "the back end 'spare' cannot be imported from absent_module:SPARE: No module named 'absent_module'"
    ),
    (
        "spare_backend:WRONG",
        "the entry point 'spare' of tilewright.backends is not a Backend of that name: spare_backend:WRONG"
    ),
])
def test_a_back_end_that_cannot_be_used(tmp_path: Path, value: str, said: str) -> None:
    done = run_with_package("import tilewright\ntilewright.Target('spare')", tmp_path, value)
    assert "TargetError" in done.stderr and said in done.stderr


def doubled(op: Op, options: KernelOptions, x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x(*i) * 2, name="doubled")


def test_the_last_strategy_that_accepts_is_chosen() -> None:
    strategies, x = Strategies(), te.placeholder((4, 8), name="x")
    op, options = Exp(), KernelOptions()
    assert strategies.find(op, options, x) is None and strategies.compute(op, options, x).op.name == "exp"
    strategies.register(Exp, Strategy("doubled", doubled))
    strategies.register(Exp, Strategy("for_vectors", doubled, accepts=lambda op, options, x: x.ndim == 1))
    found = strategies.find(op, options, x)
    assert found is not None and found.name == "doubled" and strategies.compute(op, options, x).op.name == "doubled"
    vector = strategies.find(op, options, te.placeholder((4,)))
    assert vector is not None and vector.name == "for_vectors"


def test_a_strategy_of_a_base_class_is_inherited() -> None:
    strategies = Strategies()
    strategies.register(Exp.__mro__[1], Strategy("general", doubled))
    found = strategies.find(Exp(), KernelOptions(), te.placeholder((4,)))
    assert found is not None and found.name == "general"


def test_the_schedule_of_a_strategy_is_attached_to_its_result() -> None:
    schedule, x = CpuSchedule(flops=32), te.placeholder((4, 8), name="x")
    made = Strategy("doubled", doubled, lambda op, options, x: schedule).apply(Exp(), KernelOptions(), x)
    assert made.op.schedule is schedule and made.op.outputs == (made,) and made.op.inputs == (x,)


def test_a_back_end_without_answers_says_so() -> None:
    bare = Backend()
    bare.name = "bare"
    target = Target("llvm")
    with pytest.raises(NotImplementedError, match="the back end 'bare' writes no text"):
        bare.emit([], target)
    with pytest.raises(NotImplementedError, match="the back end 'bare' describes no machine"):
        bare.machine(target)


def test_machines_of_the_cpu_back_ends() -> None:
    znver4 = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2").machine
    assert znver4 == Machine(512, 32, 32 << 10, 1 << 20, 2, pipe_bits=256)
    portable = Target("c -num-cores=1").machine
    assert portable == Machine(256, 16, 32 << 10, 1 << 20, 1, scalar=True, backend="c")
    assert np.all([Target(t).machine.cores == 1 for t in ("llvm -mtriple=wasm32-unknown-unknown", "llvm -num-cores=1")])


@pytest.mark.slow
def test_only_strategies_know_operators() -> None:
    """Targets, code generation and linkers know no graphs; strategies are listed by class of operator."""
    known = [
        (module, imported, place) for module, imported, place,
        _ in edges() if room(module) == "backends" and room(imported).startswith("relay")
    ]
    assert [k for k in known if k[0] != "backends.cpu.operators" or not k[1].startswith("relay.op")] == []


IN_C = '''
from tilewright.backends.cpu.c.backend import CBackend
from tilewright.backends.cpu.c.compile import compile_c
from tilewright.backends.cpu.c.memory import CONTEXT
from tilewright.backends.targets.target import Target
from tilewright.runtime.program import KernelCall, entry_symbols, interruptible_symbol, segments

HEAD = f"#include <stdint.h>\\n#include <stdlib.h>\\n{CONTEXT}\\n"
SERIAL = """
static void serial(tw_context *c, void (*body)(void *, int64_t, int64_t), void *closure, int64_t count, int64_t grain) {
  body(closure, 0, count);
}
void *tw_pool_create(int64_t threads) {
  tw_context *c = calloc(1, 4096);
  if (c) c->parallel_for = serial, c->threads = 1;
  return c;
}
void tw_pool_destroy(void *context) { free(context); }
"""


class HostCodeInC:
    """Entries in C for programs of kernels alone, in one thread."""

    def entries(self, manifest, target, looks):
        first = {"input": 0, "output": len(manifest.inputs)}
        memory = first["output"] + len(manifest.outputs)

        def address(p):
            if p.kind in first:
                return f"args[{first[p.kind] + p.offset}] + {p.skip}"
            return f"args[{memory + (p.kind == 'workspace')}] + {p.offset}"

        native = [part for part in segments(manifest.steps) if isinstance(part, tuple)]
        lines = [HEAD, SERIAL]
        for symbol, part in zip(entry_symbols(manifest.steps), native, strict=True):
            assert all(isinstance(s, KernelCall) and not s.checks for s in part) and manifest.parts == 1
            lines += [f"void {s.symbol}(tw_context *{', char *' * len(s.args)});" for s in part]
            calls = [f"{s.symbol}({', '.join(['c', *map(address, s.args)])});" for s in part]
            lines += [f"int32_t {symbol}(tw_context *c, char **args) {{", *calls, "return 0; }"]
            if looks is not None:
                lines.append(f"int32_t {interruptible_symbol(symbol)}(tw_context *c, char **args, void *pending)")
                lines.append(f"{{ return {symbol}(c, args); }}")
        return ["\\n".join(lines)]

    def c_entry(self, manifest):
        name, count = manifest.c_name, len(manifest.inputs) + len(manifest.outputs)
        return compile_c(f"""{HEAD}
extern char tw_constants[];
void *tw_pool_create(int64_t threads);
int32_t tw_run(tw_context *c, char **args);
int32_t {name}_run(char **inputs, char **outputs) {{
  char *args[{count + 2}], *memory = aligned_alloc(64, {-(-manifest.workspace_bytes // 64) * 64 or 64});
  for (int k = 0; k < {count}; k++)
    args[k] = k < {len(manifest.inputs)} ? inputs[k] : outputs[k - {len(manifest.inputs)}];
  args[{count}] = tw_constants, args[{count + 1}] = memory;
  int32_t status = tw_run(tw_pool_create(1), args);
  free(memory);
  return status;
}}
void {name}_close(void) {{}}
""", Target(manifest.target))

    def compile(self, text, target, *, in_order=False):
        return compile_c(text, target)


class Spare(CBackend):
    name = "spare"
    host_code = HostCodeInC()


SPARE = Spare()
'''


@pytest.mark.slow
def test_a_back_end_links_programs_without_llvm(tmp_path: Path) -> None:
    code = """
sys.modules["llvmlite"] = None
import numpy as np, tilewright as tvm
from tilewright.compiler.pipeline import compile_module
from tilewright.relay.testing import mlp
from tilewright.relay.transform.bind_params import bind_params
module = bind_params(*mlp.get_workload(1))
compile_module(lambda: module, "spare").save("m.so")
given = np.random.default_rng(0).standard_normal((1, 1, 28, 28)).astype(np.float32)
found = tvm.load("m.so")(given)
del sys.modules["llvmlite"]
np.testing.assert_allclose(found, tvm.compile(module)(given), rtol=1e-4)
"""
    done = run_with_package(code, tmp_path, module=IN_C)
    assert done.returncode == 0, done.stderr
