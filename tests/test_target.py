"""Targets: what is understood, what is refused and how, and what is derived."""

from __future__ import annotations

import json

import pytest

import tilewright as tvm
from tilewright import relay, target
from tilewright.base.errors import TargetError
from tilewright.compat.target import Target, VirtualDevice
from tilewright.runtime.host import host_arch, host_features, host_triple


def test_native_target_is_this_machine() -> None:
    target = Target("llvm")
    assert target.is_native and target.mcpu == "native" and target.mtriple == host_triple()
    assert target.features == host_features()
    assert target.kind == "llvm" and target.kind.name == "llvm" and target.keys == ("cpu",)
    assert target.cores >= 1 and target.l1_bytes >= 16 << 10 and target.l2_bytes >= 128 << 10


def test_options_of_the_field() -> None:
    target = Target("llvm -mcpu=znver4 -mtriple=x86_64-linux-gnu -mattr=+avx2,-avx512f -num-cores=2 -device=arm_cpu")
    assert (
        target.mcpu, target.mtriple, target.mattr, target.cores
    ) == ("znver4", "x86_64-linux-gnu", ("+avx2", "-avx512f"), 2)
    assert target.keys == ("arm_cpu", "cpu")
    assert target.vector_bits == 256 and target.vector_registers == 16 and not any(
        f.startswith("avx512") for f in target.features
    )
    assert target.attrs["num-cores"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "llvm", "npu, llvm", "npu -size=16 -name='a, b', ethos-n, llvm -mattr=+avx2,-avx512f",
        "llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu", "llvm -mattr=+avx2,-avx512f", "llvm -num-cores=3 -keys=a,b"
    ]
)
def test_text_dictionary_and_json_round_trip(text: str) -> None:
    target = Target(text)
    assert str(target) == text
    assert Target(str(target)) == target == Target(target.export()) == Target(
        json.dumps(target.export())
    ) == Target(target)
    assert hash(Target(text)) == hash(target)
    assert target != Target("llvm -mtriple=aarch64-linux-gnu")


@pytest.mark.parametrize(("cpu", "bits", "registers", "fma", "lanes"), [
    ("x86-64", 128, 16, False, 4), ("x86-64-v2", 128, 16, False, 4), ("x86-64-v3", 256, 16, True, 8),
    ("x86-64-v4", 512, 32, True, 16), ("znver5", 512, 32, True, 16), ("haswell", 256, 16, True, 8),
    ("sandybridge", 256, 16, False, 8)])
def test_x86_levels(cpu: str, bits: int, registers: int, fma: bool, lanes: int) -> None:
    target = Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    assert (
        target.vector_bits, target.vector_registers, target.has_fma, target.lanes("float32")
    ) == (bits, registers, fma, lanes)
    assert target.lanes("int8") == 4 * lanes and target.lanes("float64") == lanes // 2


def test_aarch64() -> None:
    target = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    assert (target.vector_bits, target.vector_registers, target.has_fma, target.cores) == (128, 32, True, 4)
    assert "dotprod" in target.features


@pytest.mark.parametrize(("text", "message"), [
    ("lvm", "'lvm' is not a kind of target: did you mean 'llvm'?"),
    ("abacus", "'abacus' is not a kind of target: the known kinds are c, llvm"),
    ("", "the target is empty; write for example 'llvm' or 'llvm -mcpu=x86-64-v3'"),
    ("llvm -mcp=znver4", "'-mcp' is not an option of a target: did you mean 'mcpu'?"),
    ("llvm -mcpu=znver44 -mtriple=x86_64-linux-gnu", "CPU 'znver44' is not known for x86_64: did you mean 'znver4'?"),
    (
        "llvm -mcpu=cortex-a72 -mtriple=x86_64-linux-gnu",
        "CPU 'cortex-a72' is not known for x86_64: it is one of aarch64; give its -mtriple"
    ),
    (
        "llvm -mcpu=quantum -mtriple=aarch64-linux-gnu",
        "CPU 'quantum' is not known for aarch64: the known CPUs are a64fx, ampere1"
    ),
    ("llvm -mtriple=x86-linux", "'x86-linux' is not a triple that code can be made for: did you mean 'x86_64'?"),
    ("llvm -mattr=avx2", "'avx2' in -mattr is not a change of features; write +avx2 or -avx2"),
    ("llvm -num-cores=many", "the target's option '-num-cores' is 'many'; it must be a number"),
    ("llvm -mcpu", "the target's option '-mcpu' has no value"),
    ("llvm znver4", "'znver4' in the target 'llvm znver4' is not an option; options start with a dash"),
    ("llvm -mcpu='x", "cannot be read"),
    ("{broken", "the target is not valid JSON"),
])
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(TargetError) as error:
        Target(text)
    assert message in str(error.value)


def test_native_cpu_of_another_architecture_is_refused() -> None:
    other = "aarch64" if host_arch() == "x86_64" else "x86_64"
    with pytest.raises(TargetError, match="-mcpu=native is this machine"):
        Target(f"llvm -mcpu=native -mtriple={other}-linux-gnu")


def test_a_target_is_not_a_number() -> None:
    with pytest.raises(TargetError, match="a target is text, a dictionary or a Target, not int"):
        Target(3)  # type: ignore[arg-type]


def test_current_target() -> None:
    assert Target.current() is None
    with Target("llvm") as outer:
        assert Target.current() is outer
        with Target("llvm -num-cores=1") as inner:
            assert Target.current() is inner
        assert Target.current() is outer
    with pytest.raises(TargetError, match="no target is set here"):
        Target.current(allow_none=False)
    assert {"c", "llvm"} <= {*Target.list_kinds()}  # programs register more


def test_accelerators_stand_before_the_processor() -> None:
    target = Target("npu -size=16 -kind=a,b, other,llvm -mattr=+avx2,+fma")
    assert [(a.name, a.options) for a in target.accelerators] == [
        ("npu", (("size", "16"), ("kind", "a,b"))), ("other", ())
    ]
    assert target.processor == Target("llvm -mattr=+avx2,+fma") != target and not target.processor.accelerators
    assert target.mattr == ("+avx2", "+fma") and Target("llvm").processor == Target("llvm")


@pytest.mark.parametrize(("text", "said"), [
    ("npu,,llvm", "the target 'npu,,llvm' has an empty part before or after a comma"),
    ("npu, ", "has an empty part before or after a comma; write for example 'npu, llvm'"),
    ("npu -size, llvm", "'-size' of the accelerator npu is not an option; write -name=value"),
    ("npu 16, llvm", "'16' of the accelerator npu is not an option"),
    ("npu -a='b, llvm", "cannot be read: No closing quotation"),
    ("npu, cuda", "'cuda' is not a kind of target"),
])
def test_accelerators_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(TargetError) as error:
        Target(text)
    assert said in str(error.value)


def test_targets_and_hosts_in_all_forms() -> None:
    both, host = Target.canon_target_and_host("c", "llvm")
    assert both == Target("c") and both is not None and both.host == host == Target("llvm")
    assert Target.canon_target_and_host(both) == (both, host) and Target.canon_target_and_host(None) == (None, None)
    assert Target.canon_target(None) is None and Target("c").with_host("llvm").host == host
    with pytest.raises(TargetError, match="the host 'llvm' is given without a target"):
        Target.canon_target_and_host(None, "llvm")
    for form in ("c", ["c"], {1: "c"}, {"kind": "c"}):
        (one,) = Target.canon_multi_target_and_host(form, "llvm")
        assert one == Target("c") and one.host == host and Target.canon_multi_target(form) == [one]
    with pytest.raises(TargetError, match="no target is given"):
        Target.canon_multi_target(None)
    found, host = Target.canon_target_map_and_host({"llvm": "f", "c": "g"}, "llvm")
    assert found == {Target("llvm"): "f", Target("c"): "g"} and {t.host for t in found} == {host}
    with Target("c"):
        assert Target.target_or_current(None) == Target("c") and Target.target_or_current("llvm") == host
    with pytest.raises(TargetError, match="no target is set here"):
        Target.target_or_current(None)


def test_virtual_devices() -> None:
    free, cpu = VirtualDevice(memory_scope="global"), VirtualDevice(tvm.cpu(), Target("llvm"))
    assert (free.device_type, free.virtual_device_id, free.target, free.memory_scope) == (-1, -1, None, "global")
    assert (cpu.device_type, cpu.virtual_device_id, cpu.target) == (1, 0, Target("llvm"))
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.annotation.on_device(x, cpu)))
    assert "on_device" in repr(mod) and "on_device" not in repr(relay.transform.PlanDevices(tvm.cpu())(mod))
    with pytest.raises(TargetError, match="a value is placed on the device cuda:1"):
        there = relay.annotation.on_device(x, VirtualDevice(tvm.cuda(1)))
        relay.transform.PlanDevices(tvm.cpu())(tvm.IRModule.from_expr(relay.Function([x], there)))
    assert (target.codegen.llvm_version_major() or 0) >= 11 and target.create("c") == Target("c")
