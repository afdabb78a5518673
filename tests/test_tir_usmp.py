"""Places of buffers in memory pools."""

from __future__ import annotations

import random
from typing import Any

import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.base.errors import CompileError, OptionError
from tilewright.ir.structural import structural_equal
from tilewright.tir import usmp

ALGORITHMS = ("greedy_by_size", "greedy_by_conflicts", "hill_climb")


def pool(size: int = -1, name: str = "workspace") -> Any:
    return tvm.WorkspacePoolInfo(name, [], tvm.PoolInfoProperties(size_hint_bytes=size))


def placed(algorithm: str, buffers: list[Any], pressure: int = 0) -> Any:
    return tvm.get_global_func(f"tir.usmp.algo.{algorithm}")(buffers, pressure)


def check(places: Any) -> int:
    """Check that no two conflicting buffers overlap; return the end of the last one."""
    spans = {b: (p.byte_offset.value, p.byte_offset.value + b.size_bytes.value) for b, p in places.items()}
    for b, (start, end) in spans.items():
        for c in b.conflicts:
            assert places[b].pool_info != places[c].pool_info or end <= spans[c][0] or spans[c][1] <= start
    return max(int(end) for _, end in spans.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_buffers_of_a_chain_share_memory(algorithm: str) -> None:
    buffers = [usmp.BufferInfo(f"b{k}", size, [pool()]) for k, size in enumerate((10, 20, 100, 40, 50, 50))]
    for k, b in enumerate(buffers):
        b.set_conflicts([c for j, c in enumerate(buffers) if abs(j - k) == 1])
    assert check(placed(algorithm, buffers)) == 140


def test_equal_buffers_are_placed_by_name() -> None:
    buffers = [usmp.BufferInfo(name, 10, [pool()]) for name in "abc"]
    for b in buffers:
        b.set_conflicts([c for c in buffers if c is not b])
    for algorithm in ALGORITHMS:
        assert [placed(algorithm, buffers)[b].byte_offset.value for b in buffers] == [20, 10, 0]


def test_the_next_pool_takes_what_the_first_cannot() -> None:
    small, large = pool(30, "small"), pool(-1, "large")
    buffers = [usmp.BufferInfo(f"b{k}", 20, [small, large], 8) for k in range(3)]
    for b in buffers:
        b.set_conflicts([c for c in buffers if c is not b])
    for algorithm in ALGORITHMS:
        places = placed(algorithm, buffers)
        assert sorted(p.pool_info.pool_name for p in places.values()) == ["large", "large", "small"]
        assert check(places) == 44
    for b in buffers:
        b.set_pool_candidates([small])
    with pytest.raises(OptionError, match=r"space available in the provided pools exceeded .* 'b1' of 20 bytes"):
        placed("greedy_by_size", buffers)


def test_random_buffers_fill_gaps() -> None:
    generator = random.Random(1)
    ranges = [(k, k + generator.randrange(1, 8), generator.randrange(1, 1000)) for k in range(40)]
    buffers = [usmp.BufferInfo(str(k), size, [pool()]) for k, (_, _, size) in enumerate(ranges)]
    for b, (start, end, _) in zip(buffers, ranges, strict=True):
        b.set_conflicts([
            c for c, (s, e, _) in zip(buffers, ranges, strict=True) if c is not b and s <= end and start <= e])
    least = max(sum(size for s, e, size in ranges if s <= t <= e) for t in range(50))
    assert least <= check(placed("hill_climb", buffers, least)) <= 1.05 * least


PROGRAM = '''
@T.prim_func
def square(A: T.Buffer((16,), "int8"), B: T.Buffer((16,), "int32")):
    W = T.allocate((16,), "int32", "global")
    for i in T.serial(16):
        W[i] = T.cast(A[i], "int32")
    for i in T.serial(16):
        B[i] = W[i] * W[i]

@T.prim_func
def __tvm_main__(input: T.handle, output: T.handle):
    T.func_attr({"runner_function": True})
    input_buffer = T.match_buffer(input, (16,), "int8")
    output_buffer = T.match_buffer(output, (16,), "int32")
    s1 = T.allocate((16,), "int8", "global")
    s2 = T.allocate((64,), "int8", "global")
    c = T.allocate_const([1, 2], "int8", (16,))
    unused = T.allocate((4,), "int8", "global")
    T.call_extern("int32", "copy", input_buffer.data, s1, c)
    T.call_extern("int32", "square", s1, s2)
    T.tvm_call_cpacked("square", s2, output_buffer.data, dtype="int32")
'''


def planned(mod: Any, **config: Any) -> Any:
    with tvm.transform.PassContext(config={f"tir.usmp.{k}": v for k, v in config.items()}):
        return tvm.get_global_func("tir.transform.UnifiedStaticMemoryPlanner")()(mod)


def test_live_ranges_go_through_calls() -> None:
    mod = usmp.transform.with_pools(tir.parse_module(PROGRAM))
    found = usmp.analysis.extract_buffer_info(mod["__tvm_main__"], mod)
    named = {b.name_hint: b for b in found.buffer_info_stmts}
    assert {n: sorted(c.name_hint for c in b.conflicts) for n, b in named.items()} == {
        "s1": ["W"], "s2": ["W"], "c": [], "unused": [], "W": ["s1", "s2"]}
    assert found.memory_pressure == 64 + 64
    assert [b.size_bytes.value for b in named.values()] == [16, 64, 16, 4, 64]
    assert [b.alignment.value for b in named.values()] == [16] * 5
    assert found.buffer_info_stmts[named["W"]] is mod["square"].body


def test_memory_in_a_loop_is_live_in_all_of_its_trips() -> None:
    mod = tir.parse_module('''
@T.prim_func
def __tvm_main__(A: T.Buffer((8,), "int8")):
    x = T.allocate((1,), "int8", "global")
    y = T.allocate((1,), "int8", "global")
    for i in T.serial(4):
        A[i] = x[0]
        y[0] = A[i]
    for i in T.parallel(4):
        for j in T.serial(2):
            z = T.allocate((1,), "int8", "global")
            z[0] = A[i]
            A[i] = z[0]
''')
    found = usmp.analysis.extract_buffer_info(mod["__tvm_main__"], usmp.transform.with_pools(mod))
    assert not found.buffer_info_stmts
    mod = usmp.transform.with_pools(mod)
    found = usmp.analysis.extract_buffer_info(mod["__tvm_main__"], mod)
    assert {b.name_hint: [c.name_hint for c in b.conflicts] for b in found.buffer_info_stmts} == {
        "x": ["y"], "y": ["x"]}, "threads do not share memory"


def test_buffers_of_one_name_get_numbers_and_recursion_is_refused() -> None:
    mod = tir.parse_module(PROGRAM.replace("s2 =", "W =").replace("s2)", "W)").replace("s2,", "W,"))
    mod = usmp.transform.with_pools(mod)
    found = usmp.analysis.extract_buffer_info(mod["__tvm_main__"], mod)
    assert [b.name_hint for b in found.buffer_info_stmts] == ["s1", "W", "c", "unused", "W2"]
    again = tir.parse_module(PROGRAM.replace("B[i] = W[i] * W[i]", 'T.call_extern("int32", "square", A.data, B.data)'))
    with pytest.raises(CompileError, match="'square' calls itself; memory is planned for programs without recursion"):
        usmp.analysis.extract_buffer_info(again["square"], again)


def test_a_planned_program_takes_its_pools() -> None:
    """`s1 = T.allocate(…)` -> `s1 = T.address_of(pool[…])`; buffers with accesses are memory at the address."""
    mod = planned(tir.parse_module(PROGRAM))
    constants, workspace = mod.attrs["pool_args"]
    assert constants.pool_info.pool_name == "global_const_workspace"
    assert [c.data.tolist() for c in constants.pool_info.constant_info_arr] == [[1, 2, *[0] * 14]]
    assert (constants.allocated_size, workspace.allocated_size) == (16, 128)
    assert [p.pool_var_idx for p in mod["__tvm_main__"].attrs["pool_args"]] == [2, 3]
    wanted = tir.parse_module('''
@T.prim_func
def square(A: T.Buffer((16,), "int8"), B: T.Buffer((16,), "int32"), c: T.Buffer((16,), "uint8"),
           w: T.Buffer((128,), "uint8")):
    W = T.Buffer((16,), "int32")
    with T.LetStmt(T.address_of(w[0]), var=W.data):
        for i in T.serial(16):
            W[i] = T.cast(A[i], "int32")
        for i in T.serial(16):
            B[i] = W[i] * W[i]

@T.prim_func
def __tvm_main__(x: T.Buffer((16,), "int8"), y: T.Buffer((16,), "int32"), c: T.Buffer((16,), "uint8"),
                 w: T.Buffer((128,), "uint8")):
    s1: T.handle = T.address_of(w[64])
    s2: T.handle = T.address_of(w[64])
    k: T.handle = T.address_of(c[0])
    unused: T.handle = T.address_of(w[0])
    T.call_extern("int32", "copy", x.data, s1, k)
    T.call_extern("int32", "square", s1, s2, c.data, w.data)
    T.tvm_call_cpacked("square", s2, y.data, c.data, w.data, dtype="int32")
''')
    assert structural_equal(mod["square"], wanted["square"])
    assert structural_equal(mod["__tvm_main__"].body, wanted["__tvm_main__"].body, map_free_vars=True)


def test_the_planner_takes_algorithms_of_the_program() -> None:
    mod = tir.parse_module(PROGRAM)
    with pytest.raises(OptionError, match="The selected custom USMP algorithm : absent is not defined; register"):
        planned(mod, custom_algorithm="absent")
    with pytest.raises(OptionError, match="The selected USMP algorithm : absent is not defined; register a function"):
        planned(mod, algorithm="absent")
    with pytest.raises(CompileError, match="memory is planned for a module with the main function '__tvm_main__'"):
        planned(tvm.IRModule({"square": mod["square"]}))


def test_inputs_and_outputs_become_memory() -> None:
    mod = tvm.get_global_func("tir.usmp.transform.CreateAllocatesForIO")()(tir.parse_module(PROGRAM))
    main = mod["__tvm_main__"]
    assert not main.params
    assert main.body.annotations == {"input_tensor": "input"}
    assert main.body.body.annotations == {"output_tensor": "output"}
    assert [str(s.dtype) for s in (main.body, main.body.body)] == ["int8", "int32"]
    mod = usmp.transform.with_pools(mod)
    found = usmp.analysis.extract_buffer_info(mod["__tvm_main__"], mod)
    named = {b.name_hint: [c.name_hint for c in b.conflicts] for b in found.buffer_info_stmts}
    assert (named["input_buffer"], named["output_buffer"]) == (["s1"], ["W"])
    assert planned(tir.parse_module(PROGRAM), use_workspace_io=True).attrs["pool_args"][1].allocated_size == 128
