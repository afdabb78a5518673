"""Targets that describe devices without code, tags, names of boards, and features of processors."""

from __future__ import annotations

import json
import pickle

import pytest

import tilewright as tvm
from tilewright import te
from tilewright.backends.targets.described import DESCRIBED
from tilewright.base.errors import OptionError, TargetError
from tilewright.base.nd import Device
from tilewright.compat import target as names
from tilewright.compat.target import Target


@pytest.mark.parametrize(("text", "keys", "device"), [
    ("cuda -arch=sm_75", ("cuda", "gpu"), 2), ("opencl -device=mali", ("mali", "opencl", "gpu"), 4),
    ("vulkan -device_name='a GPU of two'", ("vulkan", "gpu"), 7), ("metal", ("metal", "gpu"), 8),
    ("ext_dev -keys=vta,cpu", ("vta", "cpu"), 12), ("llvm", ("cpu",), 1),
])
def test_a_device_is_described_by_keys_and_attributes(text: str, keys: tuple[str, ...], device: int) -> None:
    target = Target(text)
    assert (target.keys, target.get_target_device_type()) == (keys, device)
    assert Target(str(target)) == target == Target(target.export()) == Target(json.dumps(target.export()))
    assert target == Target(target) and hash(target) == hash(Target(text))


def test_the_text_of_a_described_target_has_keys_and_defaults() -> None:
    assert str(Target("cuda -libs=cublas,cudnn")) == (
        "cuda -keys=cuda,gpu -libs=cublas,cudnn -max_num_threads=1024 -thread_warp_size=32")
    assert Target("cuda -libs=cublas").libs == ["cublas"] and Target("cuda").model == "unknown"
    assert Target("cuda").max_num_threads == 1024 and Target("llvm").thread_warp_size == -1
    assert [Target(f"vulkan -supports_float16={v}").attrs["supports_float16"] for v in ("True", "false", "1")] == [
        True, False, True]


@pytest.mark.parametrize("kind", sorted(DESCRIBED))
def test_no_code_is_generated_for_a_described_kind(kind: str) -> None:
    assert kind in Target.list_kinds() and Device.STR2MASK[kind] == Target(kind).get_target_device_type()
    with pytest.raises(TargetError, match=f"'{kind}' is not a kind of target for which code is generated"):
        Target(kind).compilable()


def test_programs_for_described_targets_are_refused_and_their_functions_chosen() -> None:
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    with pytest.raises(TargetError, match="'cuda' is not a kind of target for which code is generated"):
        tvm.build(te.create_schedule(b.op), [a, b], target="cuda -arch=sm_75")
    with pytest.raises(TargetError, match="machine code for the microcontroller 'cortex-m55' is not generated"):
        tvm.build(te.create_schedule(b.op), [a, b], target="llvm -mcpu=cortex-m55")
    with pytest.raises(TargetError, match="'-cl-opt' is for LLVM's command line"):
        tvm.build(te.create_schedule(b.op), [a, b], target="llvm -cl-opt=-unroll-count=3,-x")

    @names.generic_func
    def tile(n: int) -> int:
        return n

    tile.register(lambda n: n + 1, ["cuda", "gpu"])
    with names.rocm():
        assert tile(1) == 2
    with Target("llvm"):
        assert tile(1) == 1


def test_a_host_is_an_option_too() -> None:
    for target in (Target("cuda --host llvm"), Target("cuda -host=llvm"), Target({"kind": "cuda", "host": "llvm"}),
                   Target(Target("cuda", "llvm")), Target("cuda").with_host("llvm"),
                   Target("cuda", {"kind": "llvm"}), Target(Target("cuda", "llvm").export())):
        assert target.host == Target("llvm") and target == Target("cuda")
    assert Target(Target("cuda", "c"), "llvm").host == Target("llvm")


def test_a_composite_target_lists_targets() -> None:
    target = Target("composite --host=llvm --devices=cuda,opencl")
    assert target.attrs["devices"] == (Target("cuda"), Target("opencl")) and target.host == Target("llvm")
    assert Target(str(target)) == target == Target(target.export())


def test_tags_name_whole_targets() -> None:
    nano, host = Target("nvidia/jetson-nano", "nvidia/geforce-rtx-2080-ti"), Target("raspberry-pi/4b-aarch64")
    assert nano.attrs["arch"] == "sm_53" and nano.attrs["registers_per_block"] == 32768
    assert nano.tag == "nvidia/jetson-nano" and nano == Target({"tag": "nvidia/jetson-nano"})
    assert nano.host is not None and nano.host.attrs["arch"] == "sm_75"
    assert host.mcpu == "cortex-a72" and host.cores == 4 and host.host is not None
    assert len(names.list_tags()) > 100
    mine = names.register_tag("test/mine", {"kind": "llvm", "num-cores": 3}, override=True)
    assert mine == Target("test/mine") and mine.cores == 3
    with pytest.raises(OptionError, match="the tag 'test/mine' is registered; replace it with override=True"):
        names.register_tag("test/mine", {"kind": "llvm"})


def test_names_of_boards_and_processors() -> None:
    rasp = names.arm_cpu("rasp3b")
    assert str(rasp) == (
        "llvm -keys=arm_cpu,cpu -device=arm_cpu -model=bcm2837 -mtriple=armv7l-linux-gnueabihf -mattr=+neon")
    assert names.arm_cpu("rasp4b64", ["-num-cores=4"]).cores == 4 and names.arm_cpu().keys == ("arm_cpu", "cpu")
    assert names.riscv_cpu("sifive-u74").family == "riscv"
    with pytest.raises(TargetError, match="'sifive-e31' has 32 bits"):
        names.riscv_cpu("sifive-e31")
    with pytest.raises(TargetError, match="there is no RISC-V processor 'sifive-u75'; did you mean 'sifive-u74'"):
        names.riscv_cpu("sifive-u75")
    with pytest.warns(DeprecationWarning, match="arm_cpu"):
        assert names.rasp() == rasp
    assert [t.device_name for t in (names.mali(), names.bifrost(), names.adreno(), names.intel_graphics())] == [
        "mali", "bifrost", "adreno", "intel_graphics"]
    assert names.cuda("t4", "sm_75").attrs["arch"] == "sm_75" and names.vta().keys == ("vta", "cpu")


@pytest.mark.parametrize(("text", "dsp", "mve"), [
    ("c -mcpu=cortex-m55", True, True), ("llvm -mcpu=cortex-m55", True, True), ("c -mcpu=cortex-m7", True, False),
    ("c -mcpu=cortex-m3", False, False), ("c -mcpu=cortex-m4+nodsp", False, False),
    ("llvm -mcpu=cortex-m55 -mattr=+nomve,+woof", True, False),
])
def test_features_of_microcontrollers(text: str, dsp: bool, mve: bool) -> None:
    target = Target(text)
    assert target.features and (target.features.has_dsp, target.features.has_mve) == (dsp, mve)
    assert not set(target.features), "generated code depends on none of them"
    assert target.keys == ("arm_cpu", "cpu") and str(target) == text.replace(" -mcpu", " -keys=arm_cpu,cpu -mcpu")


def test_features_by_name() -> None:
    found = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1").features
    assert found.has_asimd and found.has_dotprod and found.has_matmul_i8 and found.is_aarch64 and not found.has_amx
    assert Target("test").features.is_test and not Target("cuda").features.is_test and Target("cuda").features
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again.is_aarch64
    with pytest.raises(AttributeError, match="ask has_<feature>"):
        _ = found.dotprod


def test_hooks_of_kinds() -> None:
    assert Target("llvm").get_kind_attr("RelayToTIR") is None
    assert Target("cuda").get_kind_attr("is_external_codegen") is None
