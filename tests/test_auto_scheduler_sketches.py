"""Rules of template-free search, before -> after, in `tests/text/auto_scheduler.md`, and random settings of sketches,
which compute the same.

With TILEWRIGHT_UPDATE_TEXT=1 the expected texts are written instead of compared; read the difference before you keep
it.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from auto_scheduler_workloads import MACHINE, arrays, random_workload, small_matmul, softmax, total, window_sum
from tilewright import te
from tilewright.base.errors import OptionError, ScheduleError
from tilewright.compat.testing.auto_scheduler import conv2d_winograd_nhwc_auto_scheduler_test
from tilewright.search import auto_scheduler, cycles, features
from tilewright.search.auto_scheduler.evolution import crossed, mutated
from tilewright.search.auto_scheduler.sketch import sketches
from tilewright.te.tensor import Tensor
from tilewright.tir.interpreter import run
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.topi.winograd import matrices

FILE = Path(__file__).parent / "text" / "auto_scheduler.md"
CASE = re.compile(r"^## (?P<name>[^\n]+)\n+```python\n(?P<code>[^`]*)```\n+```text\n(?P<text>[^`]*)```\n", re.M)


def shown(code: str) -> str:
    """The roles and the loops of a case, whose schedule is also run."""
    names: dict[str, Any] = {"te": te, "plan": 0, "setting": {}}
    exec(code, names)
    dag = auto_scheduler.ComputeDAG(names["tensors"])
    sketch = sketches(dag, MACHINE)[names["plan"]]
    setting = {k.name: k.choices[0] for k in sketch.knobs}
    assert set(names["setting"]) <= set(setting), f"the knobs are {setting}"
    state = sketch.state(setting | names["setting"])
    check(dag, state, 1e-6)
    return f"{sketch.plan}\n\n{state}"


def check(dag: auto_scheduler.ComputeDAG, state: Any, tolerance: float = 0.0) -> None:
    """A state computes what the plain loops compute."""
    given = arrays(dag.tensors)
    results = []
    for s in (state, dag.init_state):
        data = [a.copy() for a in given]
        run(lower_blocks(dag.func(s)), data)
        results.append(data[-1])
    np.testing.assert_allclose(results[0], results[1], rtol=tolerance, atol=0)


@pytest.mark.parametrize("case", [pytest.param(m, id=m["name"]) for m in CASE.finditer(FILE.read_text())])
def test_before_and_after(case: re.Match[str]) -> None:
    text = shown(case["code"])
    if os.environ.get("TILEWRIGHT_UPDATE_TEXT"):
        whole = FILE.read_text()
        FILE.write_text(whole.replace(case[0], case[0][: case.start("text") - case.start()] + text + "```\n"))
    else:
        assert text == case["text"]


def test_the_file_holds_cases_only() -> None:
    assert FILE.read_text().count("\n## ") == len(CASE.findall(FILE.read_text()))


def legal(dag: auto_scheduler.ComputeDAG, choose: random.Random, count: int) -> list[tuple[Any, Any]]:
    """Random settings that make programs, with their sketches."""
    found: list[tuple[Any, Any]] = []
    all_sketches = sketches(dag, MACHINE)
    for _ in range(40 * count):
        sketch = choose.choice(all_sketches)
        setting = sketch.sample(choose)
        try:
            dag.func(sketch.state(setting))
        except ScheduleError:
            continue
        found.append((sketch, setting))
        if len(found) == count:
            break
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(14))
def test_random_sketches_of_random_programs_compute_the_same(seed: int) -> None:
    choose = random.Random(seed)
    dag = auto_scheduler.ComputeDAG(random_workload(seed))
    found = legal(dag, choose, 2)
    assert found
    for sketch, setting in found:
        check(dag, sketch.state(setting))


@pytest.mark.parametrize(
    "tensors", [small_matmul(30, 24, 20), softmax(10, 16), window_sum(9, 10), total(256)],
    ids=["matmul", "softmax", "window", "total"]
)
def test_random_sketches_as_native_code(tensors: list[Tensor]) -> None:
    choose = random.Random(1)
    dag = auto_scheduler.ComputeDAG(tensors)
    given = arrays(tensors)
    plain = [a.copy() for a in given]
    tvm.build(dag.func(dag.init_state), target="llvm")(*plain)
    for sketch, setting in legal(dag, choose, 4):
        data = [tvm.nd.array(a) for a in given]
        tvm.build(dag.func(sketch.state(setting)), target="llvm")(*data)
        np.testing.assert_allclose(data[-1].numpy(), plain[-1], rtol=1e-5)


def test_settings_are_changed_within_their_choices() -> None:
    choose = random.Random(0)
    sketch = sketches(auto_scheduler.ComputeDAG(window_sum(12, 16)), MACHINE)[0]
    choices = {k.name: k.choices for k in sketch.knobs}
    one, other = sketch.sample(choose), sketch.sample(choose)
    for _ in range(50):
        changed = mutated(sketch, one, choose)
        assert 1 <= sum(changed[k] != one[k] for k in one) <= 2
        assert all(v in choices[k] for k, v in changed.items())
        assert all(v in (one[k], other[k]) for k, v in crossed(one, other, choose).items())
        one = changed if sketch.fits(changed) else one
    assert all(sketch.fits(sketch.sample(choose)) for _ in range(10))


def test_features_of_a_tiled_product() -> None:
    dag = auto_scheduler.ComputeDAG(small_matmul(32, 32, 64))
    sketch = sketches(dag, MACHINE)[0]
    setting = {k.name: k.choices[0] for k in sketch.knobs} | {"2.0.tile": 4, "2.1.tile": 16, "2.r0.unroll": 2}
    product, copy = features.statements(dag.func(sketch.state(setting)))
    assert (product.vector, product.unrolled, product.in_registers, product.sums) == (8, 16, True, True)
    assert product.trips() == 32 * 32 * 64 and copy.trips() == 32 * 32
    kinds = {a.buffer.name: a.lanes for a in product.accesses if not a.writes}
    assert kinds == {"A": "same", "B": "contiguous"}
    elements = {a.buffer.name: a.elements[product.region] for a in product.accesses if not a.writes}
    assert elements == {"A": 8.0, "B": 32.0}
    (a,) = (a for a in product.accesses if a.buffer.name == "A")
    assert (a.elements[0], a.lines[0]) == (32 * 64, 32 * 64 * 4 / 64)
    vector = features.vector_of([product, copy], MACHINE, cycles.cycles([product, copy], MACHINE))
    assert vector.shape == (features.WIDTH,)
    assert np.isfinite(vector).all()


def test_the_first_guess_prefers_registers_lanes_and_cores() -> None:
    dag = auto_scheduler.ComputeDAG(small_matmul(256, 256, 256))
    sketch = sketches(dag, MACHINE)[0]

    def guess(state: Any) -> float:
        return sum(cycles.cycles(features.statements(dag.func(state)), MACHINE))

    first = {k.name: k.choices[0] for k in sketch.knobs}
    good, narrow = sketch.state(
        first | {"2.0.tile": 4, "2.1.tile": 16}
    ), sketch.state(first | {"2.0.tile": 1, "2.1.tile": 8})
    assert guess(good) < guess(narrow) < guess(dag.init_state) / 4


Rule = auto_scheduler.PreloadCustomSketchRule


def policy_with(*rules: Rule, size: int = 16) -> auto_scheduler.SketchPolicy:
    dag = auto_scheduler.ComputeDAG(small_matmul(size, size, size))
    task = auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
    return auto_scheduler.SketchPolicy(task, verbose=0, seed=1, init_search_callbacks=list(rules))


def test_rules_of_a_program_make_sketches() -> None:
    def tiled(policy: Any, state: Any, stage: int) -> list[Any]:
        new = auto_scheduler.loop_state.State(state, policy.search_task.compute_dag)
        new.split(stage, new.stages[stage].iters[0], [8, 2])
        return [[state.state_object, -1], [new.state_object, -1]]

    rule = Rule(lambda policy, state, stage: Rule.APPLY_AND_SKIP_REST, tiled)
    found = policy_with(rule).generate_sketches()
    assert [[i.extent for i in s.stages[-1].iters] for s in found] == [[16, 16, 16], [1, 8, 2, 16, 16]]
    own = policy_with().generate_sketches()
    passed = policy_with(Rule(lambda policy, state, stage: Rule.PASS, tiled))
    assert passed.generate_sketches() == own
    both = policy_with(Rule(lambda policy, state, stage: Rule.APPLY * (stage == 2), tiled))
    assert both.generate_sketches()[:2] == found
    population = policy_with(rule).sample_initial_population()
    assert set(population) == set(found)
    assert policy_with(rule).evolutionary_search(population, 2)
    with pytest.raises(OptionError, match="the condition of rule 'CustomSketchRule' is 7; it must be PASS"):
        policy_with(Rule(lambda policy, state, stage: 7, tiled)).generate_sketches()


def test_facts_about_stages() -> None:
    facts = auto_scheduler._ffi_api
    dag = auto_scheduler.ComputeDAG(small_matmul(16, 16, 16))
    state = dag.get_init_state()
    assert not facts.SearchPolicyUtilsIsTiled(state.stages[2]) and not facts.SearchPolicyUtilsIsTiled(state.stages[0])
    state.cache_write(2, "local")
    state.cache_read(0, "local", [2])
    assert [facts.SearchPolicyUtilsHasCacheWriteStage(state, k) for k in range(5)] == [False] * 3 + [True, False]
    assert [facts.SearchPolicyUtilsHasCacheReadStage(state, k) for k in range(5)] == [True] + [False] * 4
    state.split(3, state.stages[3].iters[0], [4])
    assert facts.SearchPolicyUtilsIsTiled(state.stages[3])
    parts = dag.get_init_state()
    parts.rfactor(2, parts.split(2, parts.stages[2].iters[2], [4])[0], 2)
    assert [facts.SearchPolicyUtilsHasRfactorStage(parts, k) for k in range(4)] == [False, False, True, False]
    threads = dag.get_init_state()
    threads.bind(2, threads.stages[2].iters[2], "threadIdx.x")
    assert facts.SearchPolicyUtilsHasCrossThreadReduction(threads, 2)
    assert not facts.SearchPolicyUtilsHasCrossThreadReduction(parts, 2)


def test_hardware_parameters_of_a_target() -> None:
    of_target = auto_scheduler.HardwareParams(target="llvm -num-cores=3")
    assert of_target == auto_scheduler.HardwareParams.of(tvm.target.Target("llvm -num-cores=3"))
    assert auto_scheduler.HardwareParams(num_cores=4, target="llvm -num-cores=3").num_cores == 4
    assert auto_scheduler.HardwareParams(2).as_json() == [2, 16, 64, 0, 0, 0, 0, 0]
    with pytest.raises(OptionError, match=r"HardwareParams takes num_cores, .* not .cores.$"):
        auto_scheduler.HardwareParams(cores=2)


def test_winograd_workload_is_a_convolution() -> None:
    tensors = conv2d_winograd_nhwc_auto_scheduler_test(1, 5, 6, 3, 2, padding=1)
    data, kernel = arrays(tensors)[0], np.random.default_rng(1).random((3, 3, 3, 2), np.float32)
    transform = np.asarray(matrices(4).weights, np.float64)
    weight = np.einsum("ya,xb,abio->yxio", transform, transform, kernel).astype(np.float32)
    out = np.zeros((1, 5, 6, 2), np.float32)
    run(lower_blocks(auto_scheduler.ComputeDAG(tensors).func(auto_scheduler.ComputeDAG(tensors).init_state)),
        [data, weight, out])
    around = np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(np.einsum("nhwi,io->nhwo", around[:, y : y + 5, x : x + 6], kernel[y, x])
                 for y in range(3) for x in range(3))
    np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-4)
