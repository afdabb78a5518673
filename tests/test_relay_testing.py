"""`relay.testing` and `tvm.testing`: networks of the field with as many parameters and multiplications as their papers
say, and short ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError
from tilewright.ir import structural_equal
from tilewright.relay import testing
from tilewright.relay.interpreter import evaluate

NETWORKS: dict[str, tuple[Callable[..., Any], dict[str, Any], float, float]] = {
    "mlp": (testing.mlp.get_workload, {"batch_size": 1}, 0.1094, 0.1092),
    "resnet18": (testing.resnet.get_workload, {}, 11.70, 1827),
    "resnet50": (testing.resnet.get_workload, {"num_layers": 50}, 25.60, 4089),
    "resnet18 channels last": (
        testing.resnet.get_workload, {"image_shape": (224, 224, 3), "layout": "NHWC"}, 11.70, 1827
    ),
    "resnet20 for small images": (
        testing.resnet.get_workload, {"num_layers": 20, "image_shape": (3, 32, 32), "num_classes": 10}, 0.2741, 41.08
    ),
    "mobilenet": (testing.mobilenet.get_workload, {}, 4.254, 569),
    "mobilenet channels last": (
        testing.mobilenet.get_workload, {"image_shape": (224, 224, 3), "layout": "NHWC"}, 4.254, 569
    ),
    "vgg11 of a small image": (
        testing.vgg.get_workload, {"batch_size": 1, "image_shape": (3, 32, 32), "num_classes": 10}, 28.15, 172.0
    ),
    "squeezenet 1.0": (testing.squeezenet.get_workload, {}, 1.248, 777),
    "squeezenet 1.1": (testing.squeezenet.get_workload, {"version": "1.1"}, 1.235, 349),
    "densenet121": (testing.densenet.get_workload, {"batch_size": 1}, 8.063, 2834),
    "inception_v3": (testing.inception_v3.get_workload, {}, 23.87, 5713),
    "dqn": (testing.dqn.get_workload, {"batch_size": 1}, 1.693, 9.352),
}
"""The network, its arguments, its parameters (batch norms' statistics among them), and its products of weights, both in
millions."""


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_have_the_size_of_their_papers(name: str) -> None:
    make, arguments, weights, products = NETWORKS[name]
    mod, params = make(**arguments)
    assert sum(p.size for p in params.values()) / 1e6 == pytest.approx(weights, rel=2e-3)
    assert relay.analysis.get_total_mac_number(mod["main"]) / 1e6 == pytest.approx(products, rel=5e-3)
    assert [p.name_hint for p in mod["main"].params if p.name_hint not in params] == ["data"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "resnet20 for small images", "dcgan", "lstm"])
def test_networks_compile_and_answer(name: str) -> None:
    if name in NETWORKS:
        make, arguments, _, _ = NETWORKS[name]
    else:
        make, arguments = (testing.dcgan.get_workload, {"batch_size": 1, "ngf": 8}) if name == "dcgan" else (
            testing.lstm.get_workload, {"iterations": 3, "num_hidden": 16}
        )
    mod, params = make(**arguments)
    shape = tuple(mod["main"].params[0].checked_type.shape)
    data = np.random.default_rng(0).standard_normal(shape, np.float32)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.set_input("data", data)
    module.run()
    inputs = [data if p.name_hint == "data" else params[p.name_hint].numpy() for p in mod["main"].params]
    tvm.testing.assert_allclose(module.get_output(0).numpy(), evaluate(mod, *inputs), rtol=1e-4, atol=1e-5)


def test_workloads_are_the_same_for_the_same_seed() -> None:
    (a, first), (b, second) = testing.mlp.get_workload(2), testing.mlp.get_workload(2)
    assert structural_equal(a, b) and all(np.array_equal(first[n].numpy(), second[n].numpy()) for n in first)
    _, other = testing.create_workload(testing.mlp.get_net(2), testing.init.Initializer(7))
    assert other["fc1_weight"].numpy().min() >= 0 and not other["fc1_bias"].numpy().any()


@pytest.mark.parametrize(("make", "message"), [
    (lambda: testing.resnet.get_net(1, num_layers=19), "ResNet has no variant of 19 layers; choose from 18, 34, 50"),
    (
        lambda: testing.resnet.get_net(1, num_layers=18, image_shape=(3, 32, 32)),
        "of 18 layers for small images; use 6n \\+ 2"
    ),
    (lambda: testing.resnet.get_net(1, layout="CHWN"), "the layout must be NCHW or NHWC, not 'CHWN'"),
    (lambda: testing.vgg.get_net(1, (3, 32, 32), 10, "float32", 12), "there is no VGG of 12 layers"),
    (lambda: testing.squeezenet.get_net(1, (3, 64, 64), 10, "2", "float32"), "there is no SqueezeNet '2'"),
    (lambda: testing.densenet.get_net(100), "there is no DenseNet of 100 layers"),
    (lambda: testing.dcgan.get_net(1, oshape=(3, 32, 32)), "images of 64x64, not 32x32"),
    (lambda: testing.layers.dense_add_bias(relay.var("x", shape=(1, 2)), name="fc"), "the layer fc needs `units`"),
    (
        lambda: testing.layers.conv2d(relay.var("x", shape=(1, relay.Any(), 4, 4)), channels=1, kernel_size=1),
        "the channels of .* are not a number"
    ),
])
def test_networks_that_there_are_none_of(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make()


def test_passes_on_an_expression() -> None:
    x = relay.var("x", shape=(2,))
    body = relay.add(x, relay.add(relay.const(1.0), relay.const(2.0)))
    folded = testing.run_opt_pass(body, relay.transform.FoldConstant())
    assert structural_equal(folded, relay.add(x, relay.const(3.0)), map_free_vars=True)
    function = testing.run_opt_pass(
        relay.Function([x], body), [relay.transform.FoldConstant(), relay.transform.ToANormalForm()]
    )
    assert isinstance(function, relay.Function) and isinstance(function.body, relay.Let)
    assert testing.run_infer_type(relay.nn.relu(x)).checked_type == x.checked_type


def test_an_attribute_of_an_operator_for_a_while() -> None:
    with testing.TempOpAttr("nn.relu", "target.somewhere", True):
        with testing.TempOpAttr("nn.relu", "target.somewhere", 7):
            assert relay.op.get("nn.relu").get_attr("target.somewhere") == 7
        assert relay.op.get("nn.relu").get_attr("target.somewhere") is True
    assert relay.op.get("nn.relu").get_attr("target.somewhere") is None


def test_answers_are_compared() -> None:
    tvm.testing.assert_allclose(tvm.nd.array([1.0, 2.0]), np.asarray([1.0, 2.0]))
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        tvm.testing.assert_allclose([1.0, 2.0], [1.0, 2.1], rtol=1e-3)
    with pytest.raises(AssertionError, match=r"the shapes differ: \(2,\), expected \(1, 2\)"):
        tvm.testing.assert_allclose([1.0, 2.0], [[1.0, 2.0]])
    assert tvm.testing.device_enabled("llvm -mcpu=core-avx2") and not tvm.testing.device_enabled("cuda")
    assert tvm.testing.enabled_targets() == [("llvm", tvm.cpu(0))]


def test_functions_that_fill_the_weights() -> None:
    w = relay.var("w", shape=(2, 3))
    net = relay.Function([relay.var("data", shape=(1, 3)), w], w)
    _, params = relay.testing.create_workload(net, lambda name, array: array.fill(len(name)))
    np.testing.assert_array_equal(params["w"].numpy(), np.ones((2, 3), "float32"))
