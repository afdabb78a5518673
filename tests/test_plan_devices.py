"""`PlanDevices`: the device of every value, copies between devices, and the text of both."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError, ParseError, TargetError
from tilewright.ir.structural import assert_structural_equal
from tilewright.ir.virtual_device import VirtualDevice
from tilewright.relay.expr import Call
from tilewright.relay.visitor import post_order

HOST = tvm.target.Target("llvm")
GPU_TARGET = tvm.target.Target("cuda").with_host(HOST)
CPU = VirtualDevice(tvm.cpu(), HOST)
GPU = VirtualDevice(tvm.device("cuda"), GPU_TARGET)
META = {"VirtualDevice": [CPU, GPU, VirtualDevice(tvm.cpu(), HOST, "near"), VirtualDevice(tvm.cpu(), HOST, "far")]}
ROW = "Tensor[(4), float32]"


def config(fallback: VirtualDevice = GPU) -> Any:
    context = tvm.transform.PassContext(config={"relay.fallback_device_type": fallback.device_type_int})
    return tvm.target.make_compilation_config(context, [HOST, GPU_TARGET])


def core() -> tvm.IRModule:
    mod = tvm.IRModule()
    mod.import_from_std("core.rly")
    return mod


def program(text: str) -> tvm.IRModule:
    for k, name in enumerate(("CPU", "GPU", "NEAR", "FAR")):
        text = text.replace(name, f"virtual_device=meta[VirtualDevice][{k}]")
    return relay.parse(f'#[version = "0.0.5"]\n{text.replace("ROW", ROW)}', "test", core(), META)


def planned(text: str) -> tvm.IRModule:
    mod = relay.transform.PlanDevices(config())(relay.transform.InferType()(program(text)))
    again = relay.transform.PlanDevices(config())(mod)
    assert_structural_equal(again, mod, map_free_vars=True)
    assert devices_of(again) == devices_of(mod)
    return relay.transform.InferType()(mod)


def devices_of(mod: tvm.IRModule) -> list[tuple[str, ...]]:
    """The devices of the parameters and of the result, for each function in reading order."""
    return [
        tuple(_short(v) for v in (*(p.virtual_device_ for p in f.params), f.virtual_device_))
        for name in sorted(mod) for f in post_order(mod[name]) if isinstance(f, relay.Function)]


def _short(device: VirtualDevice) -> str:
    return device.memory_scope or {1: "cpu", 2: "gpu", -1: ""}[device.device_type]


CASES: dict[str, tuple[str, str, list[tuple[str, ...]]]] = {
    "a value on another device is copied": (
        "def @main(%a: ROW, %b: ROW) { %0 = exp(%a); %1 = on_device(%0, CPU); subtract(%1, %b) }",
        "def @main(%a: ROW, %b: ROW) { %0 = exp(%a); %1 = on_device(%0, CPU, constrain_result=True); "
        "%2 = device_copy(%1, src_CPU, dst_GPU); subtract(%2, %b) }",
        [("cpu", "gpu", "gpu")]),
    "a mark at the end fixes the result": (
        "def @main(%a: ROW) { %0 = exp(%a); on_device(%0, CPU) }", "def @main(%a: ROW) { exp(%a) }", [("cpu", "cpu")]),
    "the default device": ("def @main(%a: ROW) { exp(%a) }", "def @main(%a: ROW) { exp(%a) }", [("gpu", "gpu")]),
    "a variable is where it is used": (
        "def @main(%a: ROW, %b: ROW) { let %l = exp(%a); %0 = on_device(%l, CPU); subtract(%0, %b) }",
        "def @main(%a: ROW, %b: ROW) { let %l = on_device(exp(%a), CPU, constrain_result=True); "
        "%0 = device_copy(%l, src_CPU, dst_GPU); subtract(%0, %b) }",
        [("cpu", "gpu", "gpu")]),
    "a parameter on two devices is copied once more": (
        "def @main(%a: ROW) { %0 = on_device(exp(%a), CPU); %1 = on_device(tanh(%a), GPU); subtract(%0, %1) }",
        "def @main(%a: ROW) { %0 = on_device(exp(%a), CPU, constrain_result=True); "
        "%1 = device_copy(%0, src_CPU, dst_GPU); %2 = device_copy(%a, src_CPU, dst_GPU); subtract(%1, tanh(%2)) }",
        [("cpu", "gpu")]),
    "a projection before the copy": (
        "def @main(%a: ROW) { %0 = split(%a, indices_or_sections=2); %1 = on_device(%0, CPU); %2 = %1.0; exp(%2) }",
        "def @main(%a: ROW) { %0 = split(%a, indices_or_sections=2); %1 = on_device(%0.0, CPU, constrain_result=True); "
        "%2 = device_copy(%1, src_CPU, dst_GPU); exp(%2) }",
        [("cpu", "gpu")]),
    "functions, their parameters and results": (
        "def @f(%a: ROW, %b: ROW) -> ROW { %0 = on_device(%b, CPU); add(%a, %0) }\n"
        "def @main(%x: ROW, %y: ROW) -> ROW { @f(%y, %x) }",
        "def @f(%a: ROW, %b: ROW) -> ROW { %0 = device_copy(%b, src_CPU, dst_GPU); add(%a, %0) }\n"
        "def @main(%x: ROW, %y: ROW) -> ROW { @f(%y, %x) }",
        [("gpu", "cpu", "gpu"), ("cpu", "gpu", "gpu")]),
    "functions of functions": (
        "def @main(%x: ROW, %y: ROW) { let %f = fn (%g: fn (ROW) -> ROW) { fn (%a: ROW) { %0 = on_device(%a, CPU); "
        "%1 = %g(%0); add(%1, %x) } }; let %h = fn (%b: ROW) { negative(%b) }; %2 = %f(%h); %3 = %2(%y); "
        "subtract(%x, %3) }",
        "def @main(%x: ROW, %y: ROW) { let %f = fn (%g: fn (ROW) -> ROW) { fn (%a: ROW) { "
        "%0 = device_copy(%a, src_CPU, dst_GPU); %1 = %g(%0); add(%1, %x) } }; let %h = fn (%b: ROW) { negative(%b) }; "
        "%2 = %f(%h); %3 = %2(%y); subtract(%x, %3) }",
        [("cpu", "gpu"), ("gpu", "gpu"), ("gpu", "gpu"), ("gpu", "cpu", "gpu")]),
    "a function in a tuple is on one device": (
        "def @main(%x: ROW, %y: ROW) { let %f = fn (%a: ROW, %b: ROW) { %0 = on_device(%b, CPU); add(%a, %0) }; "
        "let %t = (%f, %x); %1 = %t.1; %2 = %t.0; %2(%1, %y) }",
        "def @main(%x: ROW, %y: ROW) { let %f = fn (%a: ROW, %b: ROW) { add(%a, %b) }; "
        "let %t = on_device((%f, %x), CPU, constrain_result=True); %1 = %t.1; %2 = %t.0; %2(%1, %y) }",
        [("cpu", "cpu", "cpu"), ("cpu", "cpu", "cpu")]),
    "branches": (
        "def @main(%x: bool, %y: ROW) { let %h = if (%x) { exp(%y) } else { "
        "on_device(%y, CPU, constrain_result=True) }; tanh(%h) }",
        "def @main(%x: bool, %y: ROW) { let %h = on_device(if (%x) { exp(%y) } else { %y }, CPU, "
        "constrain_result=True); tanh(%h) }",
        [("cpu", "cpu", "cpu")]),
    "the type of a marked function": (
        "def @main(%x: bool, %y: ROW, %z: ROW) { let %f = fn (%a) { add(%a, %y) }; let %g = fn (%b) { exp(%b) }; "
        "let %h = on_device(if (%x) { %f } else { %g }, CPU, constrain_result=True); %h(%z) }",
        "def @main(%x: bool, %y: ROW, %z: ROW) { let %f = fn (%a) { add(%a, %y) }; let %g = fn (%b) { exp(%b) }; "
        "let %h = on_device(if (%x) { %f } else { %g }, CPU, constrain_result=True); %h(%z) }",
        [("cpu", "cpu"), ("cpu", "cpu"), ("cpu", "cpu", "cpu", "cpu")]),
    "references": (
        "def @main(%x: ROW, %y: ROW) { let %r = ref(%x); %0 = on_device(%y, CPU); ref_write(%r, %0); "
        "add(%x, ref_read(%r)) }",
        "def @main(%x: ROW, %y: ROW) { let %r = on_device(ref(%x), GPU, constrain_result=True); "
        "%0 = device_copy(%y, src_CPU, dst_GPU); on_device(ref_write(%r, %0), GPU, constrain_result=True); "
        "add(%x, ref_read(%r)) }",
        [("gpu", "cpu", "gpu")]),
    "data types": (
        "type List[A] { Cons(A, List[A]), Nil, }\n"
        "def @main(%x: ROW, %y: ROW) { %0 = on_device(%y, CPU, constrain_result=True); let %l = Cons(%0, Nil); "
        "match? (%l) { Cons(%z, _) => add(%x, %z) } }",
        "type List[A] { Cons(A, List[A]), Nil, }\n"
        "def @main(%x: ROW, %y: ROW) { let %l = on_device(Cons(%y, Nil), CPU, constrain_result=True); "
        "match? (%l) { Cons(%z, _) => add(%x, %z) } }",
        [("cpu", "cpu", "cpu")]),
    "shapes are on the host": (
        "def @main(%x: Tensor[(?, 2), float32]) { %0 = on_device(%x, GPU, constrain_result=True); vm.shape_of(%0) }",
        "def @main(%x: Tensor[(?, 2), float32]) { vm.shape_of(%x) }", [("gpu", "cpu")]),
    "a computed shape": (
        "def @main(%x: ROW, %s: Tensor[(2), int64]) { vm.reshape_tensor(%x, %s, newshape=[2, 2]) }",
        "def @main(%x: ROW, %s: Tensor[(2), int64]) { vm.reshape_tensor(%x, %s, newshape=[2, 2]) }",
        [("gpu", "cpu", "gpu")]),
    "a block of memory": (
        "def @main(%n: int64, %a: int64) { memory.alloc_storage(%n, %a, GPU) }",
        "def @main(%n: int64, %a: int64) { memory.alloc_storage(%n, %a, GPU) }", [("cpu", "cpu", "gpu")]),
    "a tensor in a block": (
        "def @main(%b: Storage[], %s: Tensor[(2), int64]) { memory.alloc_tensor(%b, 0, %s, const_shape=[3, 2]) }",
        "def @main(%b: Storage[], %s: Tensor[(2), int64]) "
        "{ %0 = on_device(0, CPU, constrain_result=True); memory.alloc_tensor(%b, %0, %s, const_shape=[3, 2]) }",
        [("gpu", "cpu", "gpu")]),
    "memories": (
        "def @near(%x {NEAR}: ROW, NEAR) -> ROW { %x }\n"
        "def @main(%a {CPU}: ROW, %b {FAR}: ROW, FAR) { %0 = @near(on_device(%a, CPU, constrain_body=False)); "
        "%1 = @near(on_device(%b, CPU, constrain_body=False)); on_device(add(%0, %1), CPU, constrain_body=False) }",
        "def @near(%x: ROW) -> ROW { %x }\n"
        "def @main(%a: ROW, %b: ROW) { %0 = @near(%a); %1 = device_copy(%b, src_FAR, dst_NEAR); %2 = @near(%1); "
        "%3 = on_device(add(%0, %2), NEAR, constrain_result=True); device_copy(%3, src_NEAR, dst_FAR) }",
        [("near", "far", "far"), ("near", "near")]),
}


@pytest.mark.parametrize("name", CASES)
def test_devices(name: str) -> None:
    before, after, devices = CASES[name]
    mod = planned(before)
    if after:
        assert_structural_equal(mod, relay.transform.InferType()(program(after)), map_free_vars=True)
    assert devices_of(mod) == devices


def test_kernels_keep_their_bodies_and_run_on_one_device() -> None:
    mod = planned("def @main(%x: ROW) { let %f = fn (%a {NEAR}: ROW, FAR, Primitive=1) { exp(%a) }; %f(%x) }")
    (kernel, main) = (f for f in post_order(mod["main"]) if isinstance(f, relay.Function))
    assert (kernel.params[0].virtual_device_, kernel.virtual_device_) == tuple(META["VirtualDevice"][2:])
    assert main.params[0].virtual_device_.memory_scope == "near"
    with pytest.raises(TargetError, match=r"is on cuda:0 .* but is needed on cpu:0"):
        planned("def @main(%x: ROW) { let %f = fn (%a {GPU}: ROW, CPU, Primitive=1) { exp(%a) }; %f(%x) }")


def test_what_is_not_a_tensor_is_not_copied() -> None:
    with pytest.raises(TargetError, match=r"%r is on cpu:0 .* only tensors are copied between devices"):
        planned("def @main(%x: ROW) { let %r = ref(%x); %0 = on_device(%r, CPU); %1 = on_device(%r, GPU); "
                "(ref_read(%0), ref_read(%1)) }")


def test_graphs_of_any_depth() -> None:
    lines = "".join(f"%{k} = add(%{k - 1}, %{k - 1});\n" for k in range(1, 3000))
    mod = planned(f"def @main(%x: ROW) {{ %0 = exp(%x); {lines} tanh(%2999) }}")
    assert devices_of(mod) == [("gpu", "gpu")]


def test_the_devices_of_a_planned_program() -> None:
    mod = relay.transform.PlanDevices(config())(relay.transform.InferType()(program(
        CASES["a value on another device is copied"][0])))
    mod = relay.transform.CapturePostDfsIndexInSpans()(mod)
    found = tvm.get_global_func("relay.transform.RecoverVirtualDeviceMap")(mod, mod["main"])
    names = {e.span.line: ("" if not isinstance(e, Call) else e.op.name, _short(d)) for e, d in found.items()}
    assert names == {
        0: ("", "cpu"), 1: ("", "gpu"), 6: ("exp", "cpu"), 7: ("on_device", "cpu"), 8: ("device_copy", "gpu"),
        9: ("subtract", "gpu"), 10: ("", "gpu")}


def test_devices_in_texts() -> None:
    x = relay.Var("x", relay.TensorType((4,), "float32"), None, VirtualDevice(tvm.cuda(1)))
    mod = tvm.IRModule.from_expr(relay.Function([x], x, attrs={"virtual_device": VirtualDevice(tvm.cpu())}))
    text = mod.astext()
    assert 'def @main(%x {virtual_device="cuda:1"}: Tensor' in text and 'virtual_device="cpu:0")' in text
    for again in (relay.parse(text), tvm.ir.load_json(tvm.ir.save_json(mod))):
        assert devices_of(again) == [("gpu", "cpu")] and again["main"].params[0].virtual_device == x.virtual_device
    text = "def @main(%x {NEAR}: ROW, FAR) { %x }"
    assert "meta[VirtualDevice][0]" in program(text).astext() and devices_of(program(text)) == [("near", "far")]
    for wrong, message in (
        ("fn (%x {device=1}) { %x }", "a parameter has only the attribute virtual_device"),
        ('fn (%x {virtual_device="abacus"}) { %x }', "there is no device 'abacus' here"),
    ):
        with pytest.raises(ParseError, match=message):
            relay.parse_expr(wrong)
    with pytest.raises(CompileError, match="a VirtualDevice cannot be saved as JSON"):
        tvm.ir.save_json(program(text))


def test_configurations() -> None:
    both = config(CPU)
    assert both.default_primitive_virtual_device == CPU == both.host_virtual_device and both.host_target == HOST
    assert both.canonical(VirtualDevice(tvm.device("cuda"))) == GPU
    assert both.canonical(VirtualDevice(target=HOST)) == CPU
    assert both.canonical(VirtualDevice(memory_scope="near")) == VirtualDevice(memory_scope="near")
    one = tvm.target.make_compilation_config(tvm.transform.PassContext(), GPU_TARGET)
    assert one.default_primitive_virtual_device == GPU and one.optional_homogeneous_target == GPU_TARGET
    assert one.canonical(VirtualDevice(tvm.cpu())) == CPU and both.optional_homogeneous_target is None
    with pytest.raises(TargetError, match="no target is for the device vulkan"):
        both.canonical(VirtualDevice(tvm.device("vulkan")))
    with pytest.raises(TargetError, match=r"fallback_device_type is 7, but no target is for devices of that kind"):
        config(VirtualDevice(tvm.device("vulkan")))


def test_targets_that_code_is_not_made_for() -> None:
    target = tvm.target.Target("cuda -arch=sm_80 -max_num_threads=256 -libs=cublas,cudnn", host="llvm")
    assert target.keys == ("cuda", "gpu") and target.attrs["libs"] == ("cublas", "cudnn") and target.host == HOST
    assert target.attrs["max_num_threads"] == 256 and target.get_target_device_type() == 2
    assert tvm.target.Target(str(target)) == target == tvm.target.Target(target.export())
    for given in ("cuda --host llvm", "cuda -host=llvm", {"kind": "cuda", "host": "llvm"}, GPU_TARGET):
        assert tvm.target.Target(given).host == HOST
    for use in (lambda: target.backend, lambda: target.machine):
        with pytest.raises(TargetError, match="'cuda' is not a kind of target for which code is generated; use one of"):
            use()
